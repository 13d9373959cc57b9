"""Ollama's API under /api: answers as lines of JSON, embeddings, and what is served."""

from tensormill.server.endpoint import Dialect
from tensormill.server.ollama import answers, embeddings, listing, stock
from tensormill.server.ollama.writing import error

ENDPOINTS = (*answers.ENDPOINTS, *embeddings.ENDPOINTS, *listing.ENDPOINTS, *stock.ENDPOINTS)
DIALECT = Dialect("Ollama", ENDPOINTS, error, prefixes=("/api/",))

__all__ = ["DIALECT"]
