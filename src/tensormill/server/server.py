"""The server behind the routes: settings, models, and the path that every answer takes, whatever its dialect."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing

from starlette.requests import Request
from starlette.responses import Response

from tensormill.bounds import MOST_PRIORITY
from tensormill.config import ServerConfig
from tensormill.observe.traces import Trace, Traces
from tensormill.server.answering import begun, prepared, stream, whole
from tensormill.server.exchange import Json, Streamed, Writer, unless_gone
from tensormill.server.meter import Meter
from tensormill.server.problem import Problem
from tensormill.server.registry import Registry
from tensormill.server.request import Ask, Bit, Caller, Prompt
from tensormill.server.served import ServedModel
from tensormill.server.store import Store

log = logging.getLogger("tensormill.server")
MakeWriter = Callable[[ServedModel, Ask, list[Prompt]], Writer]


class Server:
    """What handlers get: `answer` is all that most of them need."""

    def __init__(self, config: ServerConfig, registry: Registry, traces: Traces | None = None) -> None:
        self.config = config
        self.registry = registry
        self.meter = Meter()
        self.traces = traces or Traces()
        self.responses = Store()
        self.started = time.time()

    def caller(self, request: Request, salt: str = "") -> Caller:
        """Who asks: named by the API key; prefixes are shared only under one key and one `salt` of the client's."""
        key = str(request.scope.get("caller", ""))
        return Caller(key, f"{key}\0{salt}" if key or salt else "")

    async def answer(
        self, request: Request, asks: Ask | Sequence[Ask], make: MakeWriter, *, streamed: bool, salt: str = ""
    ) -> Response:
        """Answer one prompt or several in the dialect of the writer that `make` makes: whole, or as a stream."""
        asks = [asks] if isinstance(asks, Ask) else asks
        for ask in asks:
            self._admit(request, ask, salt)
        async with AsyncExitStack() as stack:
            trace = stack.enter_context(self._trace(request, asks[0]))
            for ask in asks:
                ask.trace = trace
            many, key = sum(ask.many for ask in asks), asks[0].caller.key
            request.scope["model"] = self.registry.find(asks[0].model).name  # for the log
            use = self.registry.use(asks[0].model, many, key=key, keep=asks[0].keep)
            model = await unless_gone(request, stack.enter_async_context(use))
            jobs = [(ask, await unless_gone(request, prepared(model, ask))) for ask in asks]
            writer = make(model, asks[0], [prompt for _, prompt in jobs])
            if streamed:
                bits = stream(model, jobs, self.meter)
                stack.push_async_callback(bits.aclose)
                if any(prompt.grammar for _, prompt in jobs):
                    bits = await unless_gone(request, begun(bits))
                return Streamed(self._pieces(model, asks[0], bits, writer), writer.media, stack.pop_all())
            return Json(writer.whole(await unless_gone(request, whole(model, jobs, self.meter))))

    def _admit(self, request: Request, ask: Ask, salt: str) -> None:
        ask.id = request.scope.get("id") or secrets.token_hex(12)
        ask.caller = self.caller(request, salt)
        if ask.caller.key:
            ask.priority = min(ask.priority, 0)  # nobody may go before other keys' requests; stepping back is fine
        if abs(ask.priority) > MOST_PRIORITY:
            raise Problem(f"priority must be between -{MOST_PRIORITY} and {MOST_PRIORITY}", param="priority")
        if ask.timeout is not None and ask.timeout <= 0:
            raise Problem(f"timeout must be above 0, not {ask.timeout}", param="timeout")
        if self.config.timeout:
            ask.timeout = min(ask.timeout or self.config.timeout, self.config.timeout)

    def _trace(self, request: Request, ask: Ask) -> Trace:
        about = {"url.path": request.url.path, "gen_ai.request.model": ask.model, "gen_ai.response.id": ask.id}
        return self.traces.request(f"{request.method} {request.url.path}", request.headers, ask.arrived, about)

    async def _pieces(
        self, model: ServedModel, ask: Ask, bits: AsyncGenerator[Bit, None], writer: Writer
    ) -> AsyncIterator[bytes]:
        yield b"".join(writer.start())
        try:
            async with aclosing(bits):
                async for bit in bits:
                    if made := b"".join(writer.bit(bit)):
                        yield made
        except Problem as problem:
            self.meter.failed(model.name, problem.kind)
            ask.trace.failed(problem.kind, str(problem))
            log.warning("a stream failed", extra={"id": ask.id, "error": str(problem)})
            yield b"".join(writer.failed(problem))
            return
        yield b"".join(writer.end())
