"""The routes of /v1/responses: make, get, delete."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body
from tensormill.server.openai.responses import translate
from tensormill.server.openai.responses.types import ResponsesRequest
from tensormill.server.openai.responses.writer import ResponseWriter
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Prompt, Values
from tensormill.server.served import ServedModel
from tensormill.server.server import Server
from tensormill.server.store import Stored


async def respond(server: Server, request: Request) -> Response:
    """Answer, and remember it unless told not to."""
    got = await body(request, ResponsesRequest, server.config.max_body)
    owner = server.caller(request).key
    before = _stored(server, owner, got.previous_response_id).messages if got.previous_response_id else []
    ask = translate.ask(got, before)
    skipped = 1 if got.instructions else 0  # instructions hold for one response only

    def keep(response: Values, messages: list[Values]) -> None:
        if got.store is not False:
            server.responses.keep(owner, response["id"], Stored(response, messages[skipped:]))

    def writer(model: ServedModel, ask: Ask, prompts: list[Prompt]) -> ResponseWriter:
        return ResponseWriter(model, ask, got, keep)

    return await server.answer(request, ask, writer, streamed=bool(got.stream), salt=got.cache_salt)


async def get(server: Server, request: Request) -> Response:
    """A response that was remembered."""
    id = request.path_params["response_id"]
    return Json(_stored(server, server.caller(request).key, id).response)


async def delete(server: Server, request: Request) -> Response:
    """Forget a response."""
    id, owner = request.path_params["response_id"], server.caller(request).key
    _stored(server, owner, id)
    server.responses.forget(owner, id)
    return Json({"id": id, "object": "response", "deleted": True})


def _stored(server: Server, owner: str, id: str) -> Stored:
    stored = server.responses.get(owner, id)
    if stored is None:
        raise Problem(f"there is no response {id!r} (any more)", kind="missing", param="previous_response_id")
    return stored


ENDPOINTS = (
    Endpoint("POST", "/v1/responses", respond, "Answer items with items", ResponsesRequest, streams=True),
    Endpoint("GET", "/v1/responses/{response_id}", get, "A response that was stored"),
    Endpoint("DELETE", "/v1/responses/{response_id}", delete, "Forget it"),
)
