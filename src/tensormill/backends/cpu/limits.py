"""What this machine can do at most: bytes read and operations done a second, by loops of the chosen instruction set.

The roofs of `tensormill bench --roofline` and of the benchmarks; measured when asked for, the best of many passes.
"""

from __future__ import annotations

from functools import cache

from tensormill.backends.cpu.cores import starting
from tensormill.backends.cpu.native import native


@cache
def read_rate(size: int, threads: int) -> float:
    """Bytes a second at which `threads` threads read a block of `size` bytes again and again: caches count if they hold it."""
    size = max(size, 4096 * threads)
    with starting(threads):
        return float(native().read_rate(size, threads, max(10, min(100, int(20e9 / size)))))


@cache
def dot_rate(threads: int) -> float:
    """Operations a second of 8-bit products summed in 32 bits, operands in the first-level cache; each counts."""
    return _operation_rate("dot", threads)


@cache
def pair_rate(threads: int) -> float:
    """The same of 16-bit products."""
    return _operation_rate("pairs", threads)


@cache
def fma_rate(threads: int) -> float:
    """Operations a second of float32 products and sums."""
    return _operation_rate("fma", threads)


def _operation_rate(kind: str, threads: int) -> float:
    with starting(threads):
        return float(native().operation_rate(kind, threads, 20))
