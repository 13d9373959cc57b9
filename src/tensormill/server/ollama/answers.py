"""`/api/chat` and `/api/generate`; without messages or a prompt they load the model, or unload it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body, unless_gone
from tensormill.server.ollama import asking
from tensormill.server.ollama.fields import AnswerRequest, ChatRequest, GenerateRequest
from tensormill.server.ollama.writing import LINES, ChatWriter, GenerateWriter, now
from tensormill.server.request import Ask, Values
from tensormill.server.server import MakeWriter, Server


async def chat(server: Server, request: Request) -> Response:
    """Answer a conversation."""
    got = await body(request, ChatRequest, server.config.max_body)
    if not got.messages:
        return await _load(server, request, got, {"message": {"role": "assistant", "content": ""}})
    return await _answer(server, request, got, asking.chat(got), lambda m, a, p: ChatWriter(m, a, p, got.model))


async def generate(server: Server, request: Request) -> Response:
    """Continue a prompt."""
    got = await body(request, GenerateRequest, server.config.max_body)
    if not (got.prompt or got.suffix or got.template or got.system or got.context):
        return await _load(server, request, got, {"response": ""})
    return await _answer(server, request, got, asking.generate(got), lambda m, a, p: GenerateWriter(m, a, p, got.model))


async def _answer(server: Server, request: Request, got: AnswerRequest, ask: Ask, make: MakeWriter) -> Response:
    ask.model = asking.find(server.registry, got.model).name
    return await server.answer(request, ask, make, streamed=got.stream is not False)


async def _load(server: Server, request: Request, got: AnswerRequest, said: Values) -> Response:
    model = asking.find(server.registry, got.model)
    keep = asking.keep(got)
    head = {"model": got.model or model.name, "created_at": now(), **said, "done": True}
    if keep == 0:
        await server.registry.unload(model, "keep_alive")
        return Json({**head, "done_reason": "unload"})
    async with AsyncExitStack() as stack:
        await unless_gone(request, stack.enter_async_context(server.registry.use(model.name, keep=keep)))
    return Json({**head, "done_reason": "load"})


ENDPOINTS = (
    Endpoint("POST", "/api/chat", chat, "Answer a conversation", ChatRequest, streams=True, media=LINES),
    Endpoint("POST", "/api/generate", generate, "Continue a prompt", GenerateRequest, streams=True, media=LINES),
)
