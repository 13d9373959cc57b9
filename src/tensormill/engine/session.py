"""A session: one conversation. It keeps the tokens it has seen, feeds new ones in chunks, and generates.

What is already in the caches is not computed again: a prompt that begins as the last one did only pays for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.config import SamplingConfig
from tensormill.engine.timings import Timings
from tensormill.errors import RequestError
from tensormill.program import Run, build_step
from tensormill.sampling import Sampler, StopMatcher

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Piece:
    """A bit of answer: its text (empty while a character or a stop string is incomplete) and its token; −1 at the end."""

    text: str
    token: int
    finish: str | None = None  # why the answer ended: stop, length, context


class Session:
    """One sequence on one engine; not thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.tokens: list[int] = []
        self.timings = Timings()

    def reset(self) -> None:
        """Forget everything."""
        self.tokens.clear()

    def feed(self, tokens: Sequence[int]) -> Logits:
        """Append tokens; the logits [V] that follow the last."""
        return self._run(tokens, every=False)[-1]

    def logits(self, tokens: Sequence[int], chunk: int = 0) -> Logits:
        """Append tokens; the logits [n, V] that follow each, computed `chunk` tokens at a time (0: the engine's)."""
        return np.concatenate(list(self._chunks(tokens, True, chunk)))

    def resume(self, tokens: Sequence[int]) -> int:
        """Cut back to the longest beginning shared with `tokens` that the caches still hold; how many that are."""
        shared = _common(self.tokens, tokens[: len(tokens) - 1])  # the last one is fed again: its logits are wanted
        if not self._engine.can_resume(shared, len(self.tokens)):
            shared = 0
        del self.tokens[shared:]
        return shared

    def generate(self, prompt: Sequence[int], sampling: SamplingConfig | None = None) -> Iterator[Piece]:
        """Answer a prompt (all of the conversation so far), token by token."""
        sampling = sampling or SamplingConfig()
        engine = self._engine
        self.timings = Timings(reused=self.resume(prompt))
        started = time.perf_counter()
        logits = self.feed(prompt[len(self.tokens) :])
        self.timings.prefill(len(prompt) - self.timings.reused, time.perf_counter() - started)
        sampler, stream = Sampler(sampling, len(logits)), engine.tokenizer.stream()
        for token in prompt:
            sampler.accept(token)
        stops = StopMatcher(sampling.stop)
        finish = "length"
        for n in range(sampling.max_tokens or engine.context):
            token = sampler.sample(logits)
            if token in engine.tokenizer.end_ids:
                finish = "stop"
                break
            sampler.accept(token)
            text, stopped = stops.push(stream.push(token))
            yield Piece(text, token)
            if stopped or len(self.tokens) >= engine.context:
                finish = "stop" if stopped else "context"
                break
            if n + 1 != sampling.max_tokens:
                started = time.perf_counter()
                logits = self.feed([token])
                self.timings.decode(time.perf_counter() - started)
        rest = "" if stops.stopped else stops.push(stream.finish())[0] + stops.finish()
        yield Piece(rest, -1, finish)

    def _run(self, tokens: Sequence[int], *, every: bool) -> Logits:
        logits = None
        for logits in self._chunks(tokens, every, 0):  # noqa: B007 - the last is wanted
            pass
        assert logits is not None
        return logits

    def _chunks(self, tokens: Sequence[int], every: bool, chunk: int) -> Iterator[Logits]:
        engine = self._engine
        self._check(tokens)
        limit = min(chunk or engine.config.chunk, engine.config.rows if every else engine.config.chunk)
        for start in range(0, len(tokens), limit):
            part = list(tokens[start : start + limit])
            last = start + limit >= len(tokens)
            want = range(len(part)) if every else [len(part) - 1] if last else []
            past = len(self.tokens)
            run = Run(part, past=past, pages=engine.pager.tables(past + len(part)), slot=1, want=want)
            out = engine.run(build_step([run], components=engine.components))
            self.tokens += part
            yield out

    def _check(self, tokens: Sequence[int]) -> None:
        engine, n = self._engine, len(self.tokens) + len(tokens)
        if not len(tokens):
            raise RequestError("there is nothing to compute: the prompt has no tokens")
        if n > engine.context:
            raise RequestError(f"{n} tokens do not fit in the context of {engine.context}; raise --ctx or shorten the prompt")
        bad = next((t for t in tokens if not 0 <= t < engine.n_vocab), None)
        if bad is not None:
            raise RequestError(f"token {bad} is not in the vocabulary of {engine.n_vocab}")


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)
