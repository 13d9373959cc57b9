"""What is compared, and what should be reached: each cell is one number of ours beside one of llama.cpp's.

A cell's goals are a ratio (ours better by so much), a share of what the machine allows, a bound, or another cell to beat. The
numbers are those that were set for this project before the kernels were written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from versus.models import REAL, TYPES

SCALE_PER_32 = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "NVFP4")


@dataclass(frozen=True)
class Goal:
    """What holds if a goal is met; None asks for nothing."""

    ratio: float | None = None  # how many times better than llama.cpp
    share: float | None = None  # of the limit
    most: float | None = None  # of our own number
    beats: str | None = None  # the key of a cell of ours that must be slower

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.ratio, self.share, self.most, self.beats))


@dataclass(frozen=True)
class Cell:
    """One number: of a part, for a model, with a test; `less` if smaller is better."""

    part: str
    model: str
    test: str
    prompt: int = 0
    generate: int = 0
    depth: int = 0
    batch: int = 1
    kv: str = "f16"
    unit: str = "tok/s"
    like: str | None = None  # the key of a cell with the same attention or less of it: settings that are slower there are here
    least: Goal = Goal()
    aim: Goal = Goal()

    @property
    def key(self) -> str:
        """Its name in results."""
        return f"{self.part}/{self.model}/{self.test}"

    @property
    def less(self) -> bool:
        """Whether a smaller number is better."""
        return self.unit != "tok/s"

    @property
    def run(self) -> tuple[object, ...]:
        """Cells of equal runs are measured by the same processes: a deep one that is also one of a KV type's, once."""
        part = "deep" if self.part == "kv" else self.part
        return part, self.model, self.depth, self.batch, self.kv, self.prompt if self.part == "prefill" else 0


def cells() -> list[Cell]:
    """The whole table, part by part."""
    return [*_prefill(), *_decode(), *_deep(), *_batch(), *_experts(), *_kv(), *_start(), *_busy(), *_types()]


PARTS = ("prefill", "decode", "deep", "batch", "moe", "kv", "start", "busy", "idle", "types")


def _prefill() -> Iterator[Cell]:
    for prompt in (512, 2048, 8192):
        for model, context in REAL.items():
            if prompt <= context:
                least, aim = (4, 6) if prompt == 512 else (5, 8)
                share = 0.25 if (prompt, model) == (512, "qwen-coder-1.5b") else None
                like = f"prefill/{model}/pp{prompt // 4}" if prompt > 512 else None
                yield Cell("prefill", model, f"pp{prompt}", prompt, like=like, least=Goal(least), aim=Goal(aim, share))


def _decode() -> Iterator[Cell]:
    for model in REAL:
        ratio = 1.8 if model == "smollm2" else 1.5
        yield Cell("decode", model, "tg64", generate=64, least=Goal(ratio, 0.8), aim=Goal(share=0.92))


def _deep() -> Iterator[Cell]:
    for depth in (4096, 16384):
        for model, context in REAL.items():
            if depth < context:
                least, aim = Goal(3.5 if model == "smollm2" else 2.0, 0.75), Goal(share=0.88)
                like = f"deep/{model}/tg32@d4096" if depth > 4096 else None
                test = f"tg32@d{depth}"
                yield Cell("deep", model, test, generate=32, depth=depth, like=like, least=least, aim=aim)


def _batch() -> Iterator[Cell]:
    for batch, least, aim in ((4, 2, 3), (16, 3, 5)):
        for model in REAL:
            test = f"tg32x{batch}"
            yield Cell("batch", model, test, generate=32, depth=16, batch=batch, least=Goal(least), aim=Goal(aim))


def _experts() -> Iterator[Cell]:
    model = "random:moe:Q4_K"
    yield Cell("moe", model, "pp512", 512, least=Goal(5), aim=Goal(8))
    yield Cell("moe", model, "tg32", generate=32, least=Goal(1.5), aim=Goal(share=0.92))


def _kv() -> Iterator[Cell]:
    for model in ("smollm2", "qwen-coder-1.5b"):
        for kv in ("f16", "q8_0", "q4_0"):
            first = f"kv/{model}/tg32@d4096 f16"
            least = Goal(share=0.75) if kv == "f16" else Goal(beats=first)
            test = f"tg32@d4096 {kv}"
            yield Cell("kv", model, test, generate=32, depth=4096, kv=kv, least=least, aim=Goal(share=0.88))


def _start() -> Iterator[Cell]:
    large = "random:8b:Q4_K"
    for model in (large, "qwen-coder-1.5b", "smollm2"):  # of small files our time is mostly Python's start: told, no goal
        goals = (Goal(1), Goal(2)) if model == large else (Goal(), Goal())
        yield Cell("start", model, "first token", 16, unit="s", least=goals[0], aim=goals[1])
        yield Cell("start", model, "peak memory", 16, unit="MB", least=Goal(1), aim=Goal(share=1))


def _busy() -> Iterator[Cell]:
    yield Cell("busy", "smollm2", "tg64 busy", generate=64, least=Goal(share=0.45), aim=Goal(share=0.6))
    yield Cell("idle", "smollm2", "cores", unit="cores", least=Goal(most=0.01), aim=Goal(most=0.01))


def _types() -> Iterator[Cell]:
    for kind in TYPES:
        model, like = f"random:1b:{kind}", f"types/random:1b:{TYPES[0]}/" if kind != TYPES[0] else None
        ratio = 1.5 if kind in SCALE_PER_32 else 2.0
        yield Cell("types", model, "pp512", 512, like=like and like + "pp512", least=Goal(ratio), aim=Goal(4))
        yield Cell("types", model, "tg32", generate=32, like=like and like + "tg32", least=Goal(1, 0.75), aim=Goal(share=0.9))
