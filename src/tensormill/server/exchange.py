"""One HTTP exchange: the body read once into types, the answer written whole or as a stream, and both given up at once when
the client has gone.

`Writer` is what a dialect implements to give answers; requests it translates to `Ask` itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tensormill.server.problem import Problem
from tensormill.server.request import Bit, Choice

log = logging.getLogger("tensormill.server")
T = TypeVar("T")
_LOOKED_AT = 1 << 16  # bytes of a body that is searched for misspelt fields
_MOST_TOLD = 256  # of them are logged
_told: set[str] = set()
_PATIENCE = 60  # seconds for a body to arrive
encode = msgspec.json.Encoder().encode


class Writer(Protocol):
    """Writes one answer in a dialect; made for one request, and may keep what it needs between calls."""

    media: str  # of the stream

    def whole(self, choices: list[Choice]) -> object:
        """The JSON value of a complete answer."""

    def start(self) -> Iterable[bytes]:
        """What a stream begins with."""

    def bit(self, bit: Bit) -> Iterable[bytes]:
        """What a bit adds to the stream."""

    def end(self) -> Iterable[bytes]:
        """What a stream ends with."""

    def failed(self, problem: Problem) -> Iterable[bytes]:
        """What a stream ends with that cannot go on."""


def sse(value: object, event: str = "") -> bytes:
    """One server-sent event, with a name if there is one."""
    return (f"event: {event}\n" if event else "").encode() + b"data: " + encode(value) + b"\n\n"


class Json(Response):
    """A JSON value."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the value."""
        return encode(content)


class Gone(Exception):
    """The client has gone; nobody waits for an answer."""


async def body(request: Request, kind: type[T], limit: int) -> T:
    """The request's JSON as a `kind`; Problem if it is too large, no JSON, or of other types."""
    raw = await _raw(request, limit)
    try:
        value = msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Problem(str(error), param=_field(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(f"the body is not JSON: {error}") from error
    if len(raw) <= _LOOKED_AT:
        _tell_unknown(raw, kind)
    return value


async def _raw(request: Request, limit: int) -> bytes:
    said = request.headers.get("content-length", "0")
    data = bytearray()
    if not said.isdigit() or int(said) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in request.stream():
                data += part
                if len(data) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise Problem(f"the body did not arrive within {_PATIENCE} s", kind="slow") from None
    except ClientDisconnect:
        raise Gone from None
    return bytes(data)


def _too_large(limit: int) -> Problem:
    return Problem(f"the body is larger than {limit} bytes (--max-body)", kind="large")


def _field(message: str) -> str | None:
    """`messages[0].role` of "… - at `$.messages[0].role`", or the name in "missing required field `x`"."""
    at = message.rsplit("`$.", 1)[1].rstrip("`") if "`$." in message else ""
    if "missing required field `" in message:
        name = message.split("missing required field `", 1)[1].split("`", 1)[0]
        return f"{at}.{name}".strip(".")
    return at or None


def _tell_unknown(raw: bytes, kind: type[Any]) -> None:
    """Warn of misspelt fields, once each."""
    given = msgspec.json.decode(raw or b"{}", type=dict[str, msgspec.Raw])
    known = {f.encode_name for f in msgspec.structs.fields(kind)}
    unknown = {name[:64] for name in set(given) - known} - _told
    if unknown and len(_told) < _MOST_TOLD:
        _told.update(unknown)
        log.warning("unknown fields are ignored", extra={"fields": sorted(unknown), "of": kind.__name__})


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled if the client goes first (Gone)."""
    return await _unless_gone(request.receive, work)


async def _unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    doing = asyncio.ensure_future(work)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Gone
        return doing.result()
    finally:
        gone.cancel()
        if not doing.done():
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Streamed(Response):
    """A response in pieces; `held` is released when it ends, however it does."""

    def __init__(self, pieces: AsyncIterator[bytes], media: str, held: AsyncExitStack) -> None:
        super().__init__(media_type=media, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._pieces = pieces
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces until they end or the client goes."""
        async with self._held:
            try:
                await _unless_gone(receive, self._send(send))
            except (Gone, OSError):
                log.debug("client gone")

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
