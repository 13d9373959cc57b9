"""The routes of Anthropic's API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server import aside
from tensormill.server.anthropic.asking import ask, shows_thinking
from tensormill.server.anthropic.fields import CountRequest, MessagesRequest
from tensormill.server.anthropic.writing import MessageWriter
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body
from tensormill.server.preparing import prepare
from tensormill.server.server import Server


async def messages(server: Server, request: Request) -> Response:
    """Answer a conversation."""
    got = await body(request, MessagesRequest, server.config.max_body)
    thinking = shows_thinking(got)
    redacted = bool(got.thinking and got.thinking.display == "omitted")
    return await server.answer(
        request,
        ask(got),
        lambda model, ask, prompts: MessageWriter(model, ask, prompts, thinking=thinking, redacted=redacted),
        streamed=bool(got.stream),
    )


async def count_tokens(server: Server, request: Request) -> Response:
    """How many tokens a conversation's prompt has; the model need not be loaded."""
    got = await body(request, CountRequest, server.config.max_body)
    model = server.registry.find(got.model)
    prompt = await aside.requests.run(server.caller(request).key, prepare, model, ask(got))
    return Json({"input_tokens": len(prompt.tokens)})


ENDPOINTS = (
    Endpoint("POST", "/v1/messages", messages, "Answer a conversation", MessagesRequest, streams=True),
    Endpoint("POST", "/v1/messages/count_tokens", count_tokens, "Count the tokens of a conversation", CountRequest),
)
