"""Tokens a second of prefill and decode on random tokens, with the meaning that llama-bench gives to pp, tg and depth.

A run begins with what is not timed: the tokens before it, which stay in the prefix cache from run to run, and a warm-up after
them. `timed` is called between that and the timed part, so that whoever stops a process between runs knows where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensormill.engine import Engine, Session

WARM_STEPS, WARM_PROMPT = 4, 32  # tokens of a warm-up; a prompt's first one is a whole chunk, for the memory of one


@dataclass(frozen=True)
class Workload:
    """What is timed: `count` tokens of a prompt or, decoding, of each of `batch` sequences, after `depth` others."""

    count: int
    decode: bool
    depth: int = 0
    batch: int = 1

    @property
    def name(self) -> str:
        """As llama-bench has it: pp512, tg32x4@d16."""
        together = f"x{self.batch}" if self.batch > 1 else ""
        return f"{'tg' if self.decode else 'pp'}{self.count}{together}" + (f"@d{self.depth}" if self.depth else "")


def rate(engine: Engine, test: Workload, run: int, *, warmup: bool = True, timed: Callable[[], None] = lambda: None) -> float:
    """Tokens a second of run 1, 2, …, whose tokens are its own."""
    if warmup:
        most = WARM_STEPS if test.decode else engine.chunk if run == 1 else WARM_PROMPT
        _seconds(engine, test, min(test.count, most), 2 * run)
    return test.count * test.batch / _seconds(engine, test, test.count, 2 * run + 1, timed)


def _seconds(engine: Engine, test: Workload, count: int, seed: int, timed: Callable[[], None] = lambda: None) -> float:
    from tensormill.engine.together import feed_together

    sessions = [engine.session() for _ in range(test.batch)]
    for number, session in enumerate(sessions):
        _go_to(test.depth, session, random_tokens(engine, test.depth + 1, number, 0))
    tokens = random_tokens(engine, count * test.batch, 0, seed)
    timed()
    started = time.perf_counter()
    if test.decode:
        for step in range(count):
            feed_together(sessions, [[token] for token in tokens[step * test.batch : step * test.batch + test.batch]])
    else:
        sessions[0].feed(tokens)
    taken = time.perf_counter() - started
    for session in sessions:
        session.end()
    return taken


def _go_to(depth: int, session: Session, tokens: Sequence[int]) -> None:
    """Begin with `depth` tokens, of which the caches may have most or all; one more is given since none resumes on all."""
    known = session.begin(tokens)
    if known < depth:
        session.feed(tokens[known:depth])


def random_tokens(engine: Engine, count: int, *seed: int) -> list[int]:
    """Tokens of no meaning, other ones for each seed, so that no cached prefix helps."""
    return Random(str(seed)).choices(range(engine.n_vocab), k=count)  # NumPy's takes long to import
