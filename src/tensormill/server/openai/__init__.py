"""OpenAI's API: a module an endpoint, each a pair of translations between its JSON and the internal request."""

from tensormill.server.endpoint import Dialect
from tensormill.server.openai import chat, completions, embeddings, fields, models, rerank
from tensormill.server.openai.responses import endpoint as responses

ENDPOINTS = (
    *chat.ENDPOINTS, *completions.ENDPOINTS, *responses.ENDPOINTS, *embeddings.ENDPOINTS, *rerank.ENDPOINTS, *models.ENDPOINTS,
)  # fmt: skip
DIALECT = Dialect("OpenAI", ENDPOINTS, fields.error)

__all__ = ["DIALECT"]
