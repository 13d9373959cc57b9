"""Anthropic's API: /v1/messages and /v1/messages/count_tokens; /v1/models, which OpenAI's has too, by its clients' header."""

from tensormill.server.anthropic import models
from tensormill.server.anthropic.endpoints import ENDPOINTS
from tensormill.server.anthropic.writing import error
from tensormill.server.endpoint import Dialect

HEADER = "anthropic-version"
DIALECT = Dialect("Anthropic", ENDPOINTS, error, prefixes=("/v1/messages",), header=HEADER)

__all__ = ["DIALECT", "HEADER", "models"]
