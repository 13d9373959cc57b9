"""`/api/embed` and the older `/api/embeddings`: texts → unit vectors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server.answering import threads
from tensormill.server.embedding import Embeddings, embed
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body, unless_gone
from tensormill.server.ollama import asking, fields
from tensormill.server.ollama.fields import EmbeddingsRequest, EmbedRequest
from tensormill.server.served import ServedModel
from tensormill.server.server import Server


async def embed_all(server: Server, request: Request) -> Response:
    """Embed one text or several; those longer than the context are cut unless `truncate` is false."""
    started = time.monotonic()
    got = await body(request, EmbedRequest, server.config.max_body)
    texts = [got.input] if isinstance(got.input, str) else got.input
    head = {"model": got.model, "embeddings": []}
    if not texts:
        return Json(head)
    made, loaded = await _embed(server, request, got, texts, cut=got.truncate is not False, dimensions=got.dimensions or 0)
    return Json(
        {
            **head,
            "embeddings": [v.tolist() for v in made.vectors],
            "total_duration": round((time.monotonic() - started) * 1e9),
            "load_duration": round((loaded - started) * 1e9),
            "prompt_eval_count": made.tokens,
        }
    )


async def embed_one(server: Server, request: Request) -> Response:
    """Embed one text."""
    got = await body(request, EmbeddingsRequest, server.config.max_body)
    if not got.prompt:
        return Json({"embedding": []})
    made, _ = await _embed(server, request, got, [got.prompt])
    return Json({"embedding": made.vectors[0].tolist()})


async def _embed(
    server: Server, request: Request, got: fields.Request, texts: Sequence[str], *, cut: bool = True, dimensions: int = 0
) -> tuple[Embeddings, float]:
    """The embeddings, and when the model was there."""
    found = asking.find(server.registry, got.model)
    async with server.registry.use(found.name, keep=asking.keep(got)) as model:
        loaded = time.monotonic()
        ids = await asyncio.get_running_loop().run_in_executor(threads, _ids, model, texts, cut)
        work = embed(model, ids, server.caller(request), str(request.scope["id"]), dimensions=dimensions)
        return await unless_gone(request, work), loaded


def _ids(model: ServedModel, texts: Sequence[str], cut: bool) -> list[str | list[int]]:
    most = model.engine.info.context if cut and model.engine.info else None
    return [model.tokenizer.encode(text, add_special=True)[:most] for text in texts]


ENDPOINTS = (
    Endpoint("POST", "/api/embed", embed_all, "Embed texts", EmbedRequest),
    Endpoint("POST", "/api/embeddings", embed_one, "Embed a text", EmbeddingsRequest),
)
