"""`/v1/embeddings`: texts or ids → unit vectors, as numbers or base64."""

from __future__ import annotations

import base64

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tensormill.bounds import MOST_EMBEDDED
from tensormill.server.embedding import Vector, embed, together
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body, unless_gone
from tensormill.server.openai.completions import prompts_of
from tensormill.server.problem import Problem
from tensormill.server.request import Values
from tensormill.server.server import Server


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """The body of /v1/embeddings; `pooling` (mean, last, cls) is ours."""

    input: str | list[str | int | list[int]]
    model: str = ""
    encoding_format: str | None = None
    dimensions: int | None = None
    user: str | None = None
    pooling: str = ""


async def embeddings(server: Server, request: Request) -> Response:
    """Embed texts."""
    got = await body(request, EmbeddingRequest, server.config.max_body)
    form = got.encoding_format or "float"
    if form not in ("float", "base64"):
        raise Problem(f"encoding_format must be float or base64, not {form!r}", param="encoding_format")
    if got.pooling not in ("", "mean", "last", "cls"):
        raise Problem(f"pooling must be mean, last or cls, not {got.pooling!r}", param="pooling")
    texts = prompts_of(got.input, "input", MOST_EMBEDDED)
    id, caller = str(request.scope["id"]), server.caller(request)
    async with server.registry.use(got.model, together(texts), key=caller.key) as model:
        work = embed(model, texts, caller, id, dimensions=got.dimensions or 0, pooling=got.pooling)
        made = await unless_gone(request, work)
        usage = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
        data = [_embedding(i, v, form) for i, v in enumerate(made.vectors)]
        return Json({"object": "list", "data": data, "model": got.model or model.name, "usage": usage})


def _embedding(index: int, vector: Vector, form: str) -> Values:
    shown = vector.tolist() if form == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": shown}


ENDPOINTS = (Endpoint("POST", "/v1/embeddings", embeddings, "Embed texts", EmbeddingRequest),)
