"""What a route is: the table that the application is built from, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server.problem import Problem
from tensormill.server.request import Values

if TYPE_CHECKING:
    from tensormill.server.server import Server

Handler = Callable[["Server", Request], Awaitable[Response]]
Shape = Callable[[Problem], Values]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path; `body` is the type of the JSON that it takes; `streams`: it can answer in pieces."""

    method: str
    path: str
    handler: Handler
    about: str
    body: type[Any] | None = None
    streams: bool = False
    media: str = "text/event-stream"  # of the pieces


@dataclass(frozen=True, slots=True)
class Dialect:
    """An API: its routes, and the shape of its errors. `prefixes`: paths whose errors have it even where no route is.

    `header`: what its clients are known by on paths of no API's own.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    shape: Shape
    prefixes: tuple[str, ...] = ()
    header: str = ""
