"""Anthropic's API: /v1/messages and /v1/messages/count_tokens."""

from tensormill.server.anthropic.endpoints import ENDPOINTS
from tensormill.server.anthropic.writing import error
from tensormill.server.endpoint import Dialect

DIALECT = Dialect("Anthropic", ENDPOINTS, error, prefixes=("/v1/messages",))

__all__ = ["DIALECT"]
