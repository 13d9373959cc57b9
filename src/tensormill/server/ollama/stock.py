"""`/api/pull` and `/api/delete`: this server serves the files that it was started with, and says so."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body
from tensormill.server.ollama import asking
from tensormill.server.ollama.fields import NameRequest
from tensormill.server.ollama.writing import LINES, line
from tensormill.server.problem import Problem
from tensormill.server.server import Server


async def pull(server: Server, request: Request) -> Response:
    """Nothing to do for a model that is served; others cannot be downloaded yet."""
    got = await body(request, NameRequest, server.config.max_body)
    name = got.model or got.name
    try:
        asking.find(server.registry, name)
    except Problem:
        raise Problem(
            f"{name!r} is not served here, and this server cannot download models yet: "
            "get its .gguf file and start `tensormill serve FILE`",
            kind="missing",
            param="model",
        ) from None
    done = {"status": "success"}
    return Json(done) if got.stream is False else Response(line(done), media_type=LINES)


async def delete(server: Server, request: Request) -> Response:
    """Refused: the files are not this server's."""
    got = await body(request, NameRequest, server.config.max_body)
    model = asking.find(server.registry, got.model or got.name)
    raise Problem(
        f"this server does not delete files: {model.path.name} was given on its command line; remove it there",
        kind="forbidden",
        param="model",
    )


ENDPOINTS = (
    Endpoint("POST", "/api/pull", pull, "Have a model at hand", NameRequest),
    Endpoint("DELETE", "/api/delete", delete, "Remove a model", NameRequest),
)
