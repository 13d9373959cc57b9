"""Speed of the native matrix product on one thread: GB/s of packed weights at T = 1 (from L2 and from DRAM), TOPS at
T = 512. Prints the best and the median of the rounds, and how busy the processor was, since a shared machine lies.

python benchmarks/linear.py [TYPE ...] [--tokens 1 512] [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from tensormill.backends.cpu.codebooks import give_codebook
from tensormill.backends.cpu.native import native as load_native
from tensormill.gguf import GGMLType

native = load_native()

TYPES = [  # those of most files first
    "Q8_0", "Q4_K", "Q4_1", "Q6_K", "Q5_0", "Q4_0", "Q5_1", "Q5_K",
    "Q3_K", "Q2_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", "Q1_0", "Q2_0",
    "TQ1_0", "TQ2_0", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS",
    "IQ3_S", "F32", "F16", "BF16",
]  # fmt: skip


def aligned(nbytes: int) -> np.ndarray:
    room = np.zeros(nbytes + 64, np.uint8)
    return room[-room.ctypes.data % 64 :][:nbytes]


def rows_of(kind: GGMLType, rows: int, columns: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    if kind is GGMLType.F32:
        return np.zeros((rows, kind.row_bytes(columns)), np.uint8)
    data = rng.integers(0, 60, (rows, kind.row_bytes(columns)), dtype=np.uint8)  # 60: no half float is infinite
    if kind is GGMLType.MXFP4:
        data[:, ::17] = 120
    return data


def pressure() -> float:
    """Share of the last ten seconds in which some process waited for a processor."""
    try:
        return float(Path("/proc/pressure/cpu").read_text().split("avg10=")[1].split()[0])
    except (OSError, IndexError):
        return float("nan")


class Case:
    """One type, one shape, packed `copies` times, so that a round reads copies · size bytes."""

    def __init__(self, kind: GGMLType, rows: int, columns: int, copies: int, tokens: int) -> None:
        give_codebook(kind)
        self.kind, self.rows, self.columns, self.tokens = kind, rows, columns, tokens
        size = native.packed_bytes(kind, rows, columns)
        first = aligned(size)
        native.pack(kind, rows_of(kind, rows, columns), columns, first)
        self.packed = [first]
        for _ in range(copies - 1):
            self.packed.append(aligned(size))
            self.packed[-1][:] = first
        self.bytes = size * copies
        x = np.random.default_rng(2).standard_normal((tokens, columns)).astype(np.float32)
        self.x: tuple[np.ndarray, ...] = (x,)
        self.call = native.multiply_floats
        if native.takes_codes(kind):
            self.call = native.multiply_codes
            self.x = (np.empty((tokens, columns), np.int8), np.empty((tokens, columns // 32), np.float32),
                      np.empty((tokens, columns // 16), np.int16))  # fmt: skip
            native.quantise_rows(x, *self.x)
        elif native.takes_words(kind):
            self.call = native.multiply_words
            blocks = -(-columns // 64) | 1
            self.x = np.empty((tokens, 64 * blocks), np.int16), np.empty((tokens, blocks), np.float32)
            native.code_words(x, *self.x)
        self.out = np.empty((tokens, rows), np.float32)

    def run(self, panels: int | None = None) -> None:
        end = -(-self.rows // 16) if panels is None else panels
        for data in self.packed:
            self.call(self.kind, data, self.rows, self.columns, *self.x, self.out, None, None, 0, end)

    def seconds(self, rounds: int, least: float = 0.02) -> tuple[float, float]:
        """Best and median CPU time of one pass over all copies, less that of a call for no panels (Python's share)."""
        call = min(self._pass(least / 4, 0) for _ in range(3))
        times = [self._pass(least, None) - call for _ in range(rounds)]
        return min(times), statistics.median(times)

    def _pass(self, least: float, panels: int | None) -> float:
        self.run(panels)
        start, passes = time.thread_time(), 0
        while (spent := time.thread_time() - start) < least:
            self.run(panels)
            passes += 1
        return spent / passes


def main() -> None:
    """Measures and prints one line a type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", default=TYPES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prefill", type=int, default=512, help="tokens of the TOPS column")
    parser.add_argument("--quick", action="store_true", help="no DRAM column")
    args = parser.parse_args()
    print(f"instruction set {native.isa()}; CPU time of one thread; best (median) of {args.rounds}")
    print(f"{'type':8} {'L2 GB/s':>16} {'DRAM GB/s':>16} {'T=' + str(args.prefill) + ' TOPS':>16} {'CPU pressure':>13}")
    for name in args.types:
        kind = GGMLType[name]
        if not native.linear_supported(kind):
            continue
        small = Case(kind, 512, 2048, 1, 1)
        cells = [tuple(small.bytes / s / 1e9 for s in small.seconds(args.rounds))]
        if args.quick:
            cells.append((float("nan"),) * 2)
        else:
            large = Case(kind, 2048, 8192, max(1, int(400e6 // (small.bytes * 16))), 1)
            cells.append(tuple(large.bytes / s / 1e9 for s in large.seconds(args.rounds)))
        many = Case(kind, 256, 2048, 1, args.prefill)
        cells.append(tuple(2 * 256 * 2048 * args.prefill / s / 1e12 for s in many.seconds(args.rounds)))
        text = " ".join(f"{best:8.3g} ({median:5.3g})" for best, median in cells)
        print(f"{name:8} {text} {pressure():13.1f}", flush=True)


if __name__ == "__main__":
    main()
