"""Speed of CPU attention alone: TFLOPS of a causal prefill, GB/s of keys and values read in a decode at a depth.

Several layers are cycled so that a decode reads memory, not cache. FLOPs count visible rows only. Prints the best and the
median of the rounds; timed inside the replay, per record.

python benchmarks/attention.py [--shapes 9x3x64 14x2x64] [--types f16 q8_0 q4_0] [--depths 512 4096] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

import numpy as np

from tensormill.backends.cpu import CPUExecutable, compile
from tensormill.gguf import GGMLType
from tensormill.program import Limits, Run, Scope, Tracer, WeightSource, build_step
from tensormill.program.kv import KVType

PAGE, CHUNK, TOKENS = 64, 512, 64


@dataclass(frozen=True)
class Embedding:
    type: GGMLType
    shape: tuple[int, ...]


class File:
    """One random table, read as a GGUF is: rows of q, then of k and v."""

    def __init__(self, width: int) -> None:
        self.array = np.random.default_rng(0).standard_normal((TOKENS, width)).astype(np.float32)
        self.tensors = {"x.weight": Embedding(GGMLType.F32, self.array.shape)}

    def data(self, name: str) -> np.ndarray:
        return self.array.view(np.uint8)

    def release(self, name: str) -> None:
        pass


class Case:
    """Layers of attention, H query heads over G heads of K numbers, filled to `depth` by chunks as it is measured."""

    def __init__(self, shape: tuple[int, int, int], kind: KVType, depth: int, layers: int, threads: int) -> None:
        self.shape, self.kind, self.layers = shape, kind, layers
        heads, groups, k = shape
        file = File((heads + 2 * groups) * k)
        g = Tracer("attention", dict(file.tensors))
        x, total = g.embed(g.step.tokens, Scope(g).x), None
        q, key, value = (
            g.heads(x[:, a * k : b * k], b - a)
            for a, b in ((0, heads), (heads, heads + groups), (heads + groups, heads + 2 * groups))
        )
        for i in range(layers):
            cache = g.paged(f"kv{i}", k=(groups, k), v=(groups, k))
            g.kv_write(cache, key, value)
            out = g.flat(g.attention(q, [cache], scale=k**-0.5))
            total = out if total is None else total + out
        assert total is not None
        pages = (depth + CHUNK) // PAGE + 2
        limits = Limits(tokens=CHUNK, sequences=1, rows=1, drafts=0, pages={0: pages}, slots=2, page=PAGE, kv_type=kind)
        program = g.program(out=total)
        self.made: CPUExecutable = compile(program, WeightSource(file), limits, threads=threads)
        self.pages = np.random.default_rng(1).permutation(np.arange(1, pages)).tolist()
        self.made.profile(True)

    def seconds(self, past: int, n: int) -> list[float]:
        """Of the attention of each layer, in a step of n tokens over `past`."""
        run = Run((np.arange(past, past + n) % TOKENS).astype(np.int32), past, pages={0: self.pages}, slot=1, want=[n - 1])
        self.made.times()
        self.made.run(build_step([run]))
        return [ns * 1e-9 for kernel, _, ns in self.made.times() if kernel == "attention"]

    def flops(self, past: int, n: int) -> float:
        heads, _, k = self.shape
        return 4.0 * heads * k * (n * past + n * (n + 1) / 2)

    def bytes(self, rows: int) -> float:
        _, groups, k = self.shape
        return 2.0 * rows * groups * GGMLType[self.kind.upper()].row_bytes(k)


def line(case: Case, depth: int, rounds: int) -> str:
    """Fills to `depth`, then measures the last chunk again and a decode."""
    for past in range(0, depth, CHUNK):
        case.seconds(past, min(CHUNK, depth - past))
    n = min(CHUNK, depth)
    prefill = [t for _ in range(max(1, rounds // 3)) for t in case.seconds(depth - n, n)]
    decode = [sum(case.seconds(depth, 1)) for _ in range(rounds)]
    work, read = case.flops(depth - n, n) * 1e-12, case.bytes(depth + 1) * case.layers * 1e-9
    fast, slow, quick, usual = min(prefill), statistics.median(prefill), min(decode), statistics.median(decode)
    return (
        f"{work / fast:8.3f} ({work / slow:5.3f}) {1e3 * slow:8.2f} "
        f"{read / quick:8.1f} ({read / usual:5.1f}) {1e6 * usual / case.layers:9.1f}"
    )


def main() -> None:
    """One line a shape, type and depth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shapes", nargs="+", default=["9x3x64", "14x2x64", "12x2x128", "4x1x256"], help="heads, KV heads, size"
    )
    parser.add_argument("--types", nargs="+", default=["f16", "q8_0", "q4_0"])
    parser.add_argument("--depths", nargs="+", type=int, default=[512, 4096])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{'shape':10} {'kv':5} {'depth':>6} {'prefill TFLOPS':>16} {'ms':>8} {'decode GB/s':>16} {'us/layer':>9}")
    for text in args.shapes:
        heads, groups, k = (int(n) for n in text.split("x"))
        for kind in args.types:
            for depth in args.depths:
                case = Case((heads, groups, k), kind, depth, args.layers, args.threads)
                print(f"{text:10} {kind:5} {depth:6} {line(case, depth, args.rounds)}", flush=True)


if __name__ == "__main__":
    main()
