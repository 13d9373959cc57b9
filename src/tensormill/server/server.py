"""The server behind the routes: settings, models, and the path that every answer takes, whatever its dialect."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing

from starlette.requests import Request
from starlette.responses import Response

from tensormill.config import ServerConfig
from tensormill.server.answering import prepared, stream, whole
from tensormill.server.exchange import Json, Streamed, Writer, unless_gone
from tensormill.server.problem import Problem
from tensormill.server.registry import Registry
from tensormill.server.request import Ask, Caller, Prompt
from tensormill.server.served import ServedModel

log = logging.getLogger("tensormill.server")
MakeWriter = Callable[[ServedModel, Ask], Writer]


class Server:
    """What handlers get: `answer` is all that most of them need."""

    def __init__(self, config: ServerConfig, registry: Registry) -> None:
        self.config = config
        self.registry = registry
        self.started = time.time()
        self.draining = False

    def caller(self, request: Request, salt: str = "") -> Caller:
        """Who asks: named by the API key; prefixes are shared only under one key and one `salt` of the client's."""
        key = str(request.scope.get("caller", ""))
        return Caller(key, f"{key}\0{salt}" if key or salt else "")

    async def answer(self, request: Request, ask: Ask, make: MakeWriter, *, streamed: bool, salt: str = "") -> Response:
        """Answer `ask` in the dialect of the writer that `make` makes: whole, or as a stream."""
        ask.id = ask.id or request.scope.get("id") or secrets.token_hex(12)
        ask.caller = self.caller(request, salt)
        limit = self.config.timeout or None
        ask.timeout = min(filter(None, (ask.timeout, limit)), default=None)
        async with AsyncExitStack() as stack:
            model = await unless_gone(request, stack.enter_async_context(self.registry.use(ask.model, max(ask.n, ask.best_of))))
            prompt = await unless_gone(request, prepared(model, ask))
            writer = make(model, ask)
            if streamed:
                pieces = self._pieces(model, ask, prompt, writer)
                return Streamed(pieces, writer.media, stack.pop_all(), {})
            return Json(writer.whole(await unless_gone(request, whole(model, ask, prompt))))

    async def _pieces(self, model: ServedModel, ask: Ask, prompt: Prompt, writer: Writer) -> AsyncIterator[bytes]:
        for piece in writer.start():
            yield piece
        try:
            async with aclosing(stream(model, ask, prompt)) as bits:
                async for bit in bits:
                    if made := b"".join(writer.bit(bit)):
                        yield made
        except Problem as problem:
            for piece in writer.failed(problem):
                yield piece
            return
        for piece in writer.end():
            yield piece
