"""Embeds texts, one at a time, a chunk a turn beside the steps of answers: the pooled rows that the head would read.

It takes a slot and pages as a sequence does, but nobody waits for it: it works on what is free.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.cache import Holding
from tensormill.engine.messages import Embed, Embedded, Failed, Reply
from tensormill.errors import RequestError
from tensormill.program import Run

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine

POOLINGS = ("mean", "last", "cls")


class Embedder:
    """Texts to embed, in order of arrival."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: deque[Embed] = deque()
        self._holding: Holding | None = None
        self._past = 0
        self._sum: npt.NDArray[np.float32] = np.zeros(0, np.float32)

    @property
    def busy(self) -> bool:
        """Whether a text waits or is under way."""
        return bool(self._queue)

    def add(self, request: Embed) -> None:
        """Queue a text; RequestError if it can never be embedded."""
        if request.pooling not in POOLINGS:
            raise RequestError(f"pooling must be one of {', '.join(POOLINGS)}, not {request.pooling!r}")
        self._engine.check_tokens(request.tokens)
        self._queue.append(request)

    def cancel(self, id: str) -> None:
        """Drop a text."""
        if self._queue and self._queue[0].id == id:
            self._close()
        self._queue = deque(r for r in self._queue if r.id != id)

    def turn(self, *, alone: bool) -> list[Reply]:
        """Compute a chunk of the first text; `alone`: nothing else runs, so that room missing now is missing for ever."""
        if not self._queue or not self._open():
            return []
        request, holding = self._queue[0], self._holding
        assert holding is not None
        part = request.tokens[self._past : self._past + self._chunk(request)]
        if not self._engine.cache.reserve(holding, self._past + len(part)):
            self._close()
            return [self._refuse(request)] if alone else []
        self._step(request, holding, part)
        if self._past < len(request.tokens):
            return []
        self._close()
        self._queue.popleft()
        pooled = self._sum / len(request.tokens) if request.pooling == "mean" else self._sum
        return [Embedded(request.id, pooled.astype("<f4").tobytes(), len(request.tokens))]

    def _chunk(self, request: Embed) -> int:
        engine = self._engine
        return min(engine.limits.rows, engine.chunk) if request.pooling == "mean" else engine.chunk

    def _open(self) -> bool:
        if self._holding is None:
            if not self._engine.cache.free_slots:
                return False
            self._holding = self._engine.cache.open([], self._queue[0].salt)
            self._past, self._sum = 0, np.zeros(0, np.float32)
        return True

    def _step(self, request: Embed, holding: Holding, part: list[int]) -> None:
        whole, first = len(request.tokens), self._past == 0
        last = self._past + len(part) == whole
        wanted = {"mean": range(len(part)), "last": [len(part) - 1] if last else [], "cls": [0] if first else []}
        run = Run(part, past=self._past, pages=holding.tables, slot=holding.slot, want=list(wanted[request.pooling]))
        rows = self._engine.outputs([run])["hidden"]
        if len(rows):
            self._sum = self._sum + rows.sum(axis=0) if self._sum.size else rows.sum(axis=0)
        self._past += len(part)
        self._engine.cache.commit(holding, request.tokens, self._past)

    def _refuse(self, request: Embed) -> Failed:
        self._queue.popleft()
        return Failed(request.id, f"there is no room in the caches for {len(request.tokens)} tokens; raise --ctx")

    def _close(self) -> None:
        if self._holding is not None:
            self._engine.cache.close(self._holding)
            self._holding = None
