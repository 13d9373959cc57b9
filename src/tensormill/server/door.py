"""What every exchange passes: a request id, the API key, where it comes from, and a line in the log (never a prompt)."""

from __future__ import annotations

import ipaddress
import logging
import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tensormill.server.exchange import Json
from tensormill.server.keys import Keys
from tensormill.server.problem import Problem
from tensormill.server.request import Values

log = logging.getLogger("tensormill.access")
Shape = Callable[[Problem], Values]
_OPEN = "/health"
_WATCHED = ("/health", "/metrics")  # asked for every few seconds: not worth a line
_CORS = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-expose-headers", b"x-request-id, retry-after"),
    (b"access-control-max-age", b"600"),
]


class Door:
    """Wraps the application; `shape_of` gives the shape of errors for a path and headers."""

    def __init__(self, app: ASGIApp, keys: Keys, *, cors: bool, local: bool, shape_of: Callable[[str, Headers], Shape]) -> None:
        self._app = app
        self._local = local and not keys and not cors
        self._keys = keys
        self._cors = cors
        self._shape_of = shape_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one exchange."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self._app(scope, receive, send)
            return
        scope["id"] = secrets.token_hex(12)
        seen = _Seen(send, scope["id"], _CORS if self._cors else [])
        started = time.monotonic()
        try:
            await self._enter(scope, receive, seen)
        finally:
            log.log(
                logging.DEBUG if scope["path"].startswith(_WATCHED) else logging.INFO,
                "request",
                extra={
                    "id": scope["id"], "method": scope["method"], "path": scope["path"], "status": seen.status,
                    "key": scope.get("caller", ""), "model": scope.get("model", ""),
                    "seconds": round(time.monotonic() - started, 4),
                },
            )  # fmt: skip

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._cors and scope["method"] == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        path, headers = scope["path"], Headers(scope=scope)
        shape = self._shape_of(path, headers)
        if self._local and (problem := _foreign(headers)):
            await Json(shape(problem), status_code=problem.status)(scope, receive, send)
            return
        if self._keys and path != _OPEN and not path.startswith(_OPEN + "/"):
            owner = self._keys.owner(_given(headers))
            if owner is None:
                problem = Problem(
                    "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
                    kind="auth",
                    code="invalid_api_key",
                )
                refusal = Json(shape(problem), status_code=401, headers={"www-authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
            scope["caller"] = owner
        await self._app(scope, receive, send)


def _foreign(headers: Headers) -> Problem | None:
    """Why a local server without keys does not answer: another site's page asks, perhaps by a name that it made point here."""
    try:
        host = urlsplit("//" + headers.get("host", "")).hostname or ""
        origin = urlsplit(headers.get("origin", "")).hostname
    except ValueError:  # "[" without "]"
        return Problem("the Host or Origin of the request is no address", kind="forbidden")
    if not is_local(host):
        return Problem(f"this server answers to local names only, not to {host!r}; use an API key", kind="forbidden")
    if "origin" in headers and not is_local(origin or ""):
        return Problem("web pages of other sites may not call this server; --cors lets them", kind="forbidden")
    return None


def is_local(host: str) -> bool:
    """Whether a name or address is this machine's own, whatever a name server says."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _given(headers: Headers) -> str:
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


class _Seen:
    """A `send` that adds headers and remembers the status."""

    def __init__(self, send: Send, id: str, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = [(b"x-request-id", id.encode()), (b"request-id", id.encode()), *headers]
        self.status = 499

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], *self._headers]}
        await self._send(message)
