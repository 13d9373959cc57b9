"""A session: one conversation. It keeps the tokens it has seen, feeds new ones in chunks, and generates.

What is already in the caches is not computed again: a prompt that begins as an earlier one did only pays for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.cache import Holding
from tensormill.config import SamplingConfig
from tensormill.engine.messages import Failed, Generate, Grammar, Output, Reply
from tensormill.engine.timings import Timings
from tensormill.errors import BackendError, RequestError
from tensormill.program import Run

if TYPE_CHECKING:
    from tensormill.engine.crank import Crank
    from tensormill.engine.engine import Engine

Logits = npt.NDArray[np.float32]
_NO_SLOT = "every slot of this engine is in use: end another session first, or load with more sequences"


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of answer: its text (empty while a character or a stop string is incomplete) and its token.

    The token is −1 at the end, and between the chunks of a long prompt, where a user may want to stop.
    """

    text: str
    token: int
    finish: str | None = None  # why the answer ended: stop, length, context


class Session:
    """One sequence on one engine; not thread-safe. Two sessions on an engine of one sequence must not be used in turns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holding: Holding | None = None
        self.tokens: list[int] = []
        self.timings = Timings()

    def begin(self, tokens: Sequence[int]) -> int:
        """Start afresh on whatever the caches hold of `tokens`; how many need not be fed again (never all of them)."""
        self.end()
        if not self._engine.cache.free_slots:
            raise RequestError(_NO_SLOT)
        holding = self._holding = self._engine.cache.open(tokens)
        if holding.snapshot is not None:
            self._engine.executable.restore(holding.slot, holding.snapshot)
        self.tokens = list(tokens[: holding.resumed])
        return holding.resumed

    def end(self) -> None:
        """Let go of pages and slot; what the prefix tree knows stays for later prompts."""
        if self._holding is not None:
            self._engine.cache.close(self._holding)
        self._holding, self.tokens = None, []

    def feed(self, tokens: Sequence[int]) -> Logits:
        """Append tokens; the logits [V] that follow the last."""
        *_, last = self._chunks(tokens, False, self._engine.chunk)
        return last.reshape(-1)

    def logits(self, tokens: Sequence[int], chunk: int = 0) -> Logits:
        """Append tokens; the logits [n, V] that follow each, computed at most `chunk` tokens at a time."""
        most = min(self._engine.limits.rows, self._engine.chunk)
        return np.concatenate(list(self._chunks(tokens, True, min(chunk or most, most))))

    def generate(
        self, prompt: Sequence[int], sampling: SamplingConfig | None = None, grammar: Grammar | None = None
    ) -> Iterator[Piece]:
        """Answer a prompt (all of the conversation so far), token by token; the answer matches `grammar`.

        It goes through a crank of its own, as a server's requests do, and so may be guessed ahead; what was fed is let go.
        """
        self.end()
        request = Generate(f"session {id(self)}", list(prompt), sampling or SamplingConfig(), grammar=grammar)
        self.timings = Timings()
        yield from self._turns(request, self.timings)

    def _turns(self, request: Generate, timings: Timings) -> Iterator[Piece]:
        """Turn the crank until the answer has ended, or nobody reads on."""
        crank, made = self._crank, 0
        if not self._engine.cache.free_slots:
            raise RequestError(_NO_SLOT)
        _refuse(crank.take(request))
        try:
            while crank.busy:
                started, computed = time.perf_counter(), crank.computed
                replies = crank.turn()
                _refuse(replies)
                seconds = time.perf_counter() - started
                if crank.computed == computed:
                    raise RequestError(f"there is no room in the caches for {len(request.tokens) + made} tokens; raise --ctx")
                outputs = [r for r in replies if isinstance(r, Output)]
                tokens = sum(len(o.tokens) for o in outputs)
                if made:
                    timings.decode(tokens, seconds)
                else:
                    timings.prefill(crank.computed - computed, seconds)
                made += tokens
                timings.reused = next((s.reused for s in crank.scheduler.running), timings.reused)
                yield from _pieces(outputs, timings)
        finally:
            crank.cancel(request.id)

    @cached_property
    def _crank(self) -> Crank:
        from tensormill.engine.crank import Crank

        return Crank(self._engine)

    @property
    def holdings(self) -> list[Holding]:
        """What it holds of the caches now: for checking the books."""
        running = [s.holding for s in self._crank.scheduler.running]
        return [h for h in (self._holding, *running) if h is not None]

    def _chunks(self, tokens: Sequence[int], every: bool, chunk: int) -> Iterator[Logits]:
        engine = self._engine
        engine.check_tokens(tokens, len(self.tokens))
        if self._holding is None:
            self.begin([])
        ahead = list(tokens)
        while ahead:
            size = min(chunk, len(ahead))
            border = (len(self.tokens) + len(ahead) - 1) // engine.limits.page * engine.limits.page - len(self.tokens)
            at_border = engine.stateful and 0 < border <= size  # end a chunk where the states are worth a snapshot
            part, ahead = ahead[: border if at_border else size], ahead[border if at_border else size :]
            yield self._step(part, every, last=not ahead, snapshot=at_border and len(part) > 1)

    def _step(self, part: list[int], every: bool, *, last: bool, snapshot: bool) -> Logits:
        engine, holding, past = self._engine, self._holding, len(self.tokens)
        assert holding is not None
        if not engine.cache.reserve(holding, past + len(part)):
            raise RequestError(f"there is no room in the caches for {past + len(part)} tokens; raise --ctx")
        want = range(len(part)) if every else [len(part) - 1] if last else []
        run = Run(part, past=past, pages=holding.tables, slot=holding.slot, want=list(want))
        out = engine.run([run])
        self.tokens += part
        engine.cache.commit(holding, self.tokens, len(self.tokens))
        if snapshot:
            engine.keep_snapshot(holding)
        return out


def _refuse(replies: Sequence[Reply]) -> None:
    for reply in replies:
        if isinstance(reply, Failed):
            raise (RequestError if reply.kind == "request" else BackendError)(reply.message)


def _pieces(outputs: Sequence[Output], timings: Timings) -> Iterator[Piece]:
    """A turn's tokens one by one, its text with the first; nothing but a chance to stop if there are none."""
    for output in outputs:
        last = output.finish is not None
        if output.usage is not None:
            timings.drafted, timings.accepted, timings.reused = output.usage.drafted, output.usage.accepted, output.usage.cached
        for i, token in enumerate(output.tokens):
            yield Piece("" if i else output.text, token)
        if last:
            yield Piece("" if output.tokens else output.text, -1, output.finish)
    if not outputs:
        yield Piece("", -1)
