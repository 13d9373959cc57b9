"""`/v1/rerank`: documents by how near they are to a query: the cosine of their embeddings.

Models with a rank head are not known yet; the answer says `cosine`, so that nobody takes it for a cross-encoder's score.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tensormill.bounds import MOST_DOCUMENTS
from tensormill.server.embedding import embed, together
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body, unless_gone
from tensormill.server.problem import Problem
from tensormill.server.request import Values
from tensormill.server.server import Server


class Document(msgspec.Struct):
    """A document with its text."""

    text: str


class RerankRequest(msgspec.Struct, kw_only=True):
    """The body of /v1/rerank."""

    query: str
    documents: list[str | Document]
    model: str = ""
    top_n: int | None = None
    return_documents: bool = True


async def rerank(server: Server, request: Request) -> Response:
    """Order documents."""
    got = await body(request, RerankRequest, server.config.max_body)
    if not 0 < len(got.documents) <= MOST_DOCUMENTS:
        raise Problem(f"documents must have 1 to {MOST_DOCUMENTS} texts", param="documents")
    if got.top_n is not None and got.top_n < 1:
        raise Problem("top_n must be at least 1", param="top_n")
    texts = [d if isinstance(d, str) else d.text for d in got.documents]
    id, caller = str(request.scope["id"]), server.caller(request)
    async with server.registry.use(got.model, together(texts), key=caller.key) as model:
        made = await unless_gone(request, embed(model, [got.query, *texts], caller, id, param="documents"))
        query, *vectors = made.vectors
        scores = [float(query @ v) for v in vectors]
        order = sorted(range(len(texts)), key=lambda i: (-scores[i], i))[: got.top_n]
        results: list[Values] = [{"index": i, "relevance_score": scores[i]} for i in order]
        for result in results if got.return_documents else []:
            result["document"] = {"text": texts[result["index"]]}
        usage = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
        return Json({"model": got.model or model.name, "scoring": "cosine", "results": results, "usage": usage})


ENDPOINTS = (
    Endpoint("POST", "/v1/rerank", rerank, "Order documents by their nearness to a query", RerankRequest),
    Endpoint("POST", "/rerank", rerank, "The same", RerankRequest),
)
