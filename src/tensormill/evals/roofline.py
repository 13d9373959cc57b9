"""How far from this machine's limits a step runs, record by record: time taken, work that had to be done, time it must take.

The floor of a record is the longest of: its weights and caches read at the rate of a block as large as all that the step
reads, its values at the rate of the second-level cache, its operations at the peak of their kind. A floor is a lower bound,
and the share of the limit is floor ÷ time. Only the CPU backend can tell times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Protocol, runtime_checkable

from tensormill.backends.cpu import limits
from tensormill.backends.cpu.work import Work
from tensormill.engine import Engine, Session
from tensormill.errors import RequestError
from tensormill.evals.throughput import random_tokens
from tensormill.program.cost import Sizes
from tensormill.program.kv import KV_TYPES

CACHED, DRAM = 1 << 20, 512 << 20  # sizes of blocks: within a core's second-level cache, beyond all caches
LEAST, MOST = 4 << 20, 1 << 30  # of the block that stands for a step's weights and caches
PREFILLS, STEPS = 3, 16  # steps that are timed


@runtime_checkable
class Profiled(Protocol):
    """What an executable must offer beyond running."""

    def profile(self, on: bool) -> None:
        """Take times from now on."""

    def times(self) -> list[tuple[str, str, int]]:
        """(kernel, what it makes, nanoseconds since the last call) of each record."""

    def work(self, sizes: Sizes) -> list[Work]:
        """The work of each record."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits at some number of threads: bytes a second by size of block, operations a second."""

    threads: int
    cached: float
    dram: float
    dot: float
    pairs: float
    fma: float


@dataclass(frozen=True, slots=True)
class Timed:
    """Records taken together: how many, seconds they took, seconds they must take, their work."""

    what: str
    calls: int
    seconds: float
    floor: float
    bytes: float
    operations: float


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step: its records, and the rate at which all that it reads can be read."""

    what: str
    tokens: int
    depth: int
    rate: float
    records: tuple[tuple[Work, float, float], ...]  # work, seconds, floor

    @property
    def seconds(self) -> float:
        """Of all records."""
        return sum(seconds for _, seconds, _ in self.records)

    @property
    def bytes(self) -> float:
        """Weights and caches that the step must read."""
        return sum(w.weights + w.caches for w, _, _ in self.records)

    @property
    def floor(self) -> float:
        """Seconds that the step must take: records one after another, each at its limit."""
        return sum(floor for _, _, floor in self.records)

    def grouped(self, by: Callable[[Work], str]) -> list[Timed]:
        """Records of one name together, those that take longest first."""
        groups: dict[str, list[tuple[Work, float, float]]] = {}
        for record in self.records:
            groups.setdefault(by(record[0]), []).append(record)
        return sorted((_timed(name, records) for name, records in groups.items()), key=lambda t: -t.seconds)


def _timed(what: str, records: Iterable[tuple[Work, float, float]]) -> Timed:
    works, seconds, floors = zip(*records, strict=True)
    moved = sum(w.weights + w.caches + w.values for w in works)
    return Timed(what, len(works), sum(seconds), sum(floors), moved, sum(w.operations for w in works))


def machine(threads: int) -> Machine:
    """Measure this machine."""
    cached, dram = (limits.read_rate(size, threads) for size in (CACHED * threads, DRAM))
    return Machine(threads, cached, dram, limits.dot_rate(threads), limits.pair_rate(threads), limits.fma_rate(threads))


def profiled(engine: Engine) -> Profiled:
    """What runs its steps, if that takes the time of single ops; else RequestError."""
    if isinstance(engine.executable, Profiled):
        return engine.executable
    raise RequestError(f"the backend {engine.config.backend} does not take the time of single ops; --backend cpu does")


def measure(engine: Engine, of: Machine, tokens: int, depth: int) -> StepReport:
    """A step that computes `tokens` (of a prompt; 1: decode) after `depth` others: the median of some."""
    executable = profiled(engine)
    session = engine.session()
    feed(session, depth, seed=1)
    session.feed(random_tokens(engine, tokens, 2))  # warm
    executable.profile(True)
    executable.times()
    times = []
    for run in range(PREFILLS if tokens > 1 else STEPS):
        if tokens > 1:
            session.end()
            feed(session, depth, seed=3 + run)
            executable.times()
        session.feed(random_tokens(engine, tokens, 100 + run))
        times.append([ns for _, _, ns in executable.times()])
    executable.profile(False)
    session.end()
    seconds = [median(column) * 1e-9 for column in zip(*times, strict=True)]
    block = KV_TYPES[engine.config.kv_type]
    rows = depth + (tokens + 1) // 2
    works = executable.work(Sizes(tokens=tokens, rows=rows, kv_bytes=block.row_bytes(32) / 32))
    read = int(sum(w.weights + w.caches for w in works))
    rate = limits.read_rate(max(LEAST, min(MOST, read)), of.threads)
    records = tuple((w, s, floor(w, of, rate)) for w, s in zip(works, seconds, strict=True))
    return StepReport(f"prefill {tokens}" if tokens > 1 else "decode", tokens, depth, rate, records)


def floor(work: Work, of: Machine, rate: float) -> float:
    """Seconds below which this work cannot be done, weights and caches being read at `rate`."""
    peak = {"codes": of.dot, "words": of.pairs, "values": of.fma}[work.reads]
    return max((work.weights + work.caches) / rate, work.values / of.cached, work.operations / peak)


def feed(session: Session, count: int, seed: int) -> None:
    """Begin afresh with `count` random tokens, none of them known to the caches."""
    session.begin([])
    if count:
        session.feed(random_tokens(session._engine, count, seed))
