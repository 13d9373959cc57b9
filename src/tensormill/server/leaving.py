"""The way out: uvicorn's server, but what is under way when its time is over ends with an error in its API's shape.

The first signal ends new connections and leaves answers `--drain` seconds, the second ends them now, a third cuts them off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from types import FrameType

import uvicorn

from tensormill.server.registry import Registry

log = logging.getLogger("tensormill.server")
_LAST = 10.0  # seconds for clients to take the error


class Leaving(uvicorn.Server):
    """Serves until a signal; `drain` seconds later it ends the engines, which fails what they were at."""

    def __init__(self, config: uvicorn.Config, registry: Registry, drain: float) -> None:
        config.timeout_graceful_shutdown = round(drain + _LAST)
        super().__init__(config)
        self._registry = registry
        self._drain = drain
        self._signals = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        self._signals += 1
        self.should_exit = True
        self.force_exit = self._signals > 2

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let answers end, then end them."""
        log.info("stopping", extra={"requests": self._registry.requests, "drain": self._drain})
        ending = asyncio.create_task(self._end())
        await super().shutdown(sockets)
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending
        await self._registry.stop()
        log.info("stopped")

    async def _end(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain):
                while self._signals < 2:  # nobody else looks for a second one
                    await asyncio.sleep(0.1)
        log.info("ending what is under way", extra={"requests": self._registry.requests})
        await self._registry.stop()
