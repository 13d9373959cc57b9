"""A client's connection: uvicorn's, closed if headers do not come or what was sent is never read."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """One connection. What is under way for it ends with it, so its places are free for others."""

    patience = 60.0  # seconds for the headers of a request, and for a full buffer to be read
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; its headers are awaited."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Bytes came; those of the next request's headers start the clock anew."""
        super().data_received(data)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        for timer in (self._late, self._unread):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """Nobody reads what was sent."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Somebody does."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _await_headers(self) -> None:
        waiting = self.conn.their_state is h11.IDLE
        if waiting and self._late is None:
            self._late = self.loop.call_later(self.patience, self.transport.abort)
        elif not waiting and self._late is not None:
            self._late.cancel()
            self._late = None
