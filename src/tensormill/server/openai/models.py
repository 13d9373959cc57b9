"""`/v1/models`: what is served; for clients of Anthropic's API, which has the same path, in its shape."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server import anthropic
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json
from tensormill.server.request import Values
from tensormill.server.server import Server


async def listing(server: Server, request: Request) -> Response:
    """All names, aliases too."""
    if anthropic.HEADER in request.headers:
        return await anthropic.models.listing(server, request)
    names = [*server.registry.models, *server.registry.aliases]
    return Json({"object": "list", "data": [_model(server, name) for name in names]})


async def one(server: Server, request: Request) -> Response:
    """One name."""
    show = anthropic.models.one if anthropic.HEADER in request.headers else _model
    return Json(show(server, server.registry.find(request.path_params["model"]).name))


def _model(server: Server, name: str) -> Values:
    model = server.registry.find(name)
    info = model.engine.info
    more = {"max_model_len": info.context} if info else {}
    status = {"loaded": model.engine.loaded, "bytes": model.memory if model.engine.active else 0}
    return {"id": name, "object": "model", "created": model.created, "owned_by": "tensormill", **more, "status": status}


ENDPOINTS = (
    Endpoint("GET", "/v1/models", listing, "The models that are served"),
    Endpoint("GET", "/v1/models/{model:path}", one, "One of them"),
)
