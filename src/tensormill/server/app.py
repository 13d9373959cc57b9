"""The ASGI application: routes, errors in each dialect's shape, start and end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tensormill.errors import TensorMillError
from tensormill.server.exchange import Gone, Json, body
from tensormill.server.openai import chat, fields
from tensormill.server.problem import Problem
from tensormill.server.request import Values
from tensormill.server.server import Server

log = logging.getLogger("tensormill.server")
Handler = Callable[[Server, Request], Awaitable[Response]]
Shape = Callable[[Problem], Values]


def application(server: Server) -> Starlette:
    """The application of a server."""
    routes = [
        _route(server, "POST", "/v1/chat/completions", _chat),
        _route(server, "GET", "/v1/models", _models),
        _route(server, "GET", "/health", _health),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await server.registry.stop()

    return Starlette(routes=routes, lifespan=lifespan)


def _route(server: Server, method: str, path: str, handler: Handler, shape: Shape = fields.error) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(server, request)
        except Problem as problem:
            return refused(problem, shape)
        except Gone:
            return Response(status_code=499)
        except TensorMillError as error:
            return refused(Problem(str(error)), shape)

    return Route(path, endpoint, methods=[method])


def refused(problem: Problem, shape: Shape) -> Response:
    """An error response."""
    headers = {"retry-after": str(problem.retry)} if problem.retry else {}
    return Json(shape(problem), status_code=problem.status, headers=headers)


async def _chat(server: Server, request: Request) -> Response:
    got = await body(request, chat.ChatRequest, server.config.max_body)
    usage = bool(got.stream_options and got.stream_options.include_usage)
    return await server.answer(
        request,
        chat.ask(got),
        lambda model, ask: chat.ChatWriter(model, ask, include_usage=usage),
        streamed=bool(got.stream),
        salt=got.cache_salt,
    )


async def _models(server: Server, request: Request) -> Response:
    models = [
        {"id": m.name, "object": "model", "created": m.created, "owned_by": "tensormill"}
        for m in server.registry.models.values()
    ]
    return Json({"object": "list", "data": models})


async def _health(server: Server, request: Request) -> Response:
    return Json({"status": "ok"})
