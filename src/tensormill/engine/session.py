"""A session: one conversation. It keeps the tokens it has seen, feeds new ones in chunks, and generates.

What is already in the caches is not computed again: a prompt that begins as an earlier one did only pays for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.cache import Holding
from tensormill.config import SamplingConfig
from tensormill.engine.messages import Grammar
from tensormill.engine.timings import Timings
from tensormill.errors import RequestError
from tensormill.program import Run
from tensormill.sampling import Sampler, StopMatcher

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine

Logits = npt.NDArray[np.float32]


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
            raise RequestError("every slot of this engine is in use: end another session first, or load with more sequences")
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
        """Answer a prompt (all of the conversation so far), token by token; the answer matches `grammar`."""
        engine, sampling = self._engine, sampling or SamplingConfig()
        engine.check_tokens(prompt)
        matcher = engine.grammars.compile(grammar.kind, grammar.text) if grammar else None
        started = time.perf_counter()
        self.timings = Timings(reused=self.begin(prompt))
        for rows in self._chunks(prompt[self.timings.reused :], False, engine.chunk):
            done = self.timings.reused + self.timings.prefill_tokens
            self.timings.prefill(len(self.tokens) - done, time.perf_counter() - started)
            if len(rows):
                logits = rows.reshape(-1)
            else:
                yield Piece("", -1)
                started = time.perf_counter()
        sampler = Sampler(sampling, len(logits), engine.tokenizer)
        stream, stops = engine.tokenizer.stream(), StopMatcher(sampling.stop)
        sampler.begin(prompt)
        finish, made = "length" if sampling.max_tokens == 0 else "", 0
        while not finish:
            token = sampler.sample(logits, allowed=matcher.allowed(len(logits)) if matcher else None)
            if token in engine.tokenizer.end_ids and (matcher or not sampling.ignore_eos):
                if matcher:
                    matcher.end()
                finish = "stop"
                break
            if matcher:
                matcher.accept(token)
            sampler.accept(token)
            made += 1
            text, stopped = stops.push(stream.push(token))
            yield Piece(text, token)
            if stopped or (matcher and matcher.closed and matcher.complete):
                finish = "stop"
            elif made == sampling.max_tokens:
                finish = "length"
            elif len(self.tokens) + 1 >= engine.context:
                finish = "context"
            else:
                started = time.perf_counter()
                logits = self.feed([token])
                self.timings.decode(time.perf_counter() - started)
        yield Piece(stops.push(stream.finish())[0] + stops.finish(), -1, finish)

    def _chunks(self, tokens: Sequence[int], every: bool, chunk: int) -> Iterator[Logits]:
        engine = self._engine
        engine.check_tokens([*self.tokens, *tokens])
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
