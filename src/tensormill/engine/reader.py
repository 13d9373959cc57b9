"""Reads texts without answering them, one at a time, a chunk a turn beside the steps of answers: embeddings, and how likely
each token was.

A text takes a slot and pages as a sequence does, but nobody waits for it: it works on what is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tensormill.cache import Holding
from tensormill.engine.answer import chance
from tensormill.engine.messages import Chance, Embed, Embedded, Failed, Reply, Score, Scored
from tensormill.errors import RequestError, TensorMillError
from tensormill.program import Run

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine

POOLINGS = ("mean", "last", "cls")
Outputs = Mapping[str, npt.NDArray[Any]]


class Reading(Protocol):
    """A text being read."""

    every: bool  # whether rows of all tokens may be wanted, so that chunks are no larger than the rows of a step

    def wanted(self, start: int, size: int, whole: int) -> list[int]:
        """Which of the `size` tokens from `start` on, of `whole`, need their rows."""

    def take(self, outputs: Outputs, start: int) -> None:
        """The rows of a chunk."""

    def reply(self) -> Reply:
        """What was read."""


class Pooling:
    """Pools hidden rows [D]."""

    def __init__(self, request: Embed) -> None:
        if request.pooling not in POOLINGS:
            raise RequestError(f"pooling must be one of {', '.join(POOLINGS)}, not {request.pooling!r}")
        self._request = request
        self.every = request.pooling == "mean"
        self._sum: npt.NDArray[np.float32] | None = None

    def wanted(self, start: int, size: int, whole: int) -> list[int]:
        """All, the last or the first."""
        if self.every:
            return list(range(size))
        at = whole - 1 - start if self._request.pooling == "last" else -start
        return [at] if 0 <= at < size else []

    def take(self, outputs: Outputs, start: int) -> None:
        """Add up."""
        rows = outputs["hidden"]
        if len(rows):
            self._sum = rows.sum(axis=0) + (0 if self._sum is None else self._sum)

    def reply(self) -> Embedded:
        """The pooled row."""
        assert self._sum is not None
        n = len(self._request.tokens)
        pooled = self._sum / np.float32(n) if self.every else self._sum
        return Embedded(self._request.id, pooled.astype("<f4").tobytes(), n)


class Scoring:
    """How likely each token was, behind those before it."""

    every = True

    def __init__(self, request: Score) -> None:
        self._request = request
        self._chances: list[Chance] = []

    def wanted(self, start: int, size: int, whole: int) -> list[int]:
        """All but the last token of the text, which nothing follows."""
        return list(range(min(size, whole - 1 - start)))

    def take(self, outputs: Outputs, start: int) -> None:
        """Look up the token behind each row."""
        tokens = self._request.tokens
        for i, row in enumerate(outputs["logits"][: max(len(tokens) - 1 - start, 0)]):
            self._chances.append(chance(row, tokens[start + i + 1], self._request.top))

    def reply(self) -> Scored:
        """Every token's chance but the first's."""
        return Scored(self._request.id, self._chances)


class Reader:
    """Texts to read, in order of arrival."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: deque[tuple[Embed | Score, Reading]] = deque()
        self._holding: Holding | None = None
        self._past = 0

    @property
    def busy(self) -> bool:
        """Whether a text waits or is under way."""
        return bool(self._queue)

    @property
    def holdings(self) -> list[Holding]:
        """What the text under way holds."""
        return [self._holding] if self._holding else []

    def add(self, request: Embed | Score) -> list[Reply]:
        """Queue a text; refused if it can never be read."""
        try:
            self._engine.check_tokens(request.tokens)
            reading: Reading = Pooling(request) if isinstance(request, Embed) else Scoring(request)
        except TensorMillError as error:
            return [Failed(request.id, str(error))]
        self._queue.append((request, reading))
        return []

    def cancel(self, id: str) -> None:
        """Drop a text."""
        if self._queue and self._queue[0][0].id == id:
            self._close()
        self._queue = deque(pair for pair in self._queue if pair[0].id != id)

    def turn(self, room: int, *, alone: bool) -> list[Reply]:
        """Compute a chunk of the first text: `alone`, as nothing else runs (room missing now is missing for ever), else of at
        most `room` tokens.
        """
        if not self._queue or not self._open():
            return []
        (request, reading), holding = self._queue[0], self._holding
        assert holding is not None
        most = min(self._engine.limits.rows, self._engine.chunk) if reading.every else self._engine.chunk
        part = request.tokens[self._past : self._past + (most if alone else min(most, room))]
        if not self._engine.cache.reserve(holding, self._past + len(part)):
            self._close()
            return self._refused() if alone else []
        want = reading.wanted(self._past, len(part), len(request.tokens))
        run = Run(part, past=self._past, pages=holding.tables, slot=holding.slot, want=want)
        reading.take(self._engine.outputs([run]), self._past)
        self._past += len(part)
        self._engine.cache.commit(holding, request.tokens, self._past)
        return self._finished() if self._past == len(request.tokens) else []

    def _open(self) -> bool:
        if self._holding is None:
            if not self._engine.cache.free_slots:
                return False
            self._holding, self._past = self._engine.cache.open([], self._queue[0][0].salt), 0
        return True

    def _finished(self) -> list[Reply]:
        self._close()
        return [self._queue.popleft()[1].reply()]

    def _refused(self) -> list[Reply]:
        request, _ = self._queue.popleft()
        return [Failed(request.id, f"there is no room in the caches for {len(request.tokens)} tokens; raise --ctx")]

    def _close(self) -> None:
        if self._holding is not None:
            self._engine.cache.close(self._holding)
            self._holding = None
