"""The ASGI application: routes of all dialects, errors in each one's shape.

A dialect is added by importing its `DIALECT` here.
"""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tensormill.errors import TensorMillError
from tensormill.server import about, anthropic, ollama, openai
from tensormill.server.door import Door, is_local
from tensormill.server.endpoint import Dialect, Endpoint, Shape
from tensormill.server.exchange import Gone, Json
from tensormill.server.keys import Keys
from tensormill.server.problem import Problem
from tensormill.server.server import Server

log = logging.getLogger("tensormill.server")
DIALECTS: tuple[Dialect, ...] = (openai.DIALECT, anthropic.DIALECT, ollama.DIALECT, about.DIALECT)
_KINDS = {404: "missing", 405: "method"}


def application(server: Server, keys: Keys) -> ASGIApp:
    """The application of a server."""
    routes = [_route(server, endpoint) for dialect in DIALECTS for endpoint in dialect.endpoints]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route, Exception: _bug})
    return Door(app, keys, cors=server.config.cors, local=is_local(server.config.host), shape_of=shape_of)


def shape_of(path: str, headers: Headers) -> Shape:
    """The shape of errors for a request: that of the dialect whose path it is, or whose client, else OpenAI's."""
    owner = next((d for d in DIALECTS if d.prefixes and path.startswith(d.prefixes)), None)
    owner = owner or next((d for d in DIALECTS if d.header and d.header in headers), DIALECTS[0])
    return owner.shape


def _route(server: Server, endpoint: Endpoint) -> Route:
    async def serve(request: Request) -> Response:
        try:
            return await endpoint.handler(server, request)
        except Gone:
            return Response(status_code=499)
        except Problem as problem:
            server.meter.failed("", problem.kind)
            return refused(problem, shape_of(request.url.path, request.headers))
        except TensorMillError as error:
            server.meter.failed("", "invalid")
            return refused(Problem(str(error)), shape_of(request.url.path, request.headers))

    return Route(endpoint.path, serve, methods=[endpoint.method])


def refused(problem: Problem, shape: Shape) -> Response:
    """An error response."""
    headers = {"retry-after": str(problem.retry)} if problem.retry else {}
    return Json(shape(problem), status_code=problem.status, headers=headers)


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = Problem(f"{error.detail}: {request.method} {request.url.path}", kind=_KINDS.get(error.status_code, "invalid"))
    response = refused(problem, shape_of(request.url.path, request.headers))
    response.headers.update(error.headers or {})
    return response


def _bug(request: Request, error: Exception) -> Response:
    log.error("unexpected error", exc_info=error, extra={"id": request.scope.get("id")})
    return refused(
        Problem("internal error; the server's log has more", kind="engine"), shape_of(request.url.path, request.headers)
    )
