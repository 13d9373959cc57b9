"""Tiny traced models for tests of ops: weights in memory, and two layers of one sort of block (OPS.md §8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensormill.gguf import GGMLType
from tensormill.program import Cache, Program, Scope, Tracer, Value, WeightSource


@dataclass(frozen=True)
class Tensor:
    type: GGMLType
    shape: tuple[int, ...]


KEPT = {np.dtype(np.float16): GGMLType.F16, np.dtype(np.int32): GGMLType.I32}


class Memory:
    """A file of float32 tensors (float16 or int32 if given so), made from a seed; `WeightSource` reads it like a GGUF."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], seed: int = 0, **given: np.ndarray) -> None:
        draw = np.random.default_rng(seed)
        self.arrays = {n: (draw.standard_normal(s) / np.sqrt(s[-1])).astype(np.float32) for n, s in shapes.items()}
        decays = {name: -abs(array) for name, array in self.arrays.items() if name.endswith("ssm_a")}
        kept = {name: array for name, array in given.items() if array.dtype in KEPT}
        self.arrays |= decays | {name: np.asarray(array, np.float32) for name, array in given.items()} | kept
        self.tensors = {n: Tensor(KEPT.get(a.dtype, GGMLType.F32), a.shape) for n, a in self.arrays.items()}

    def data(self, name: str) -> np.ndarray:
        array = self.arrays[name]
        return np.ascontiguousarray(array.reshape(-1, array.shape[-1])).view(np.uint8)

    def release(self, name: str) -> None:
        pass


@dataclass(frozen=True)
class Model:
    program: Program
    source: WeightSource
    vocabulary: int = 31

    @property
    def lifetimes(self) -> list[int]:
        return sorted({c.window for c in self.program.caches if c.kind == "paged"})

    @property
    def ratios(self) -> list[int]:
        paged = {c.ratio for c in self.program.caches}
        rows = {str(op.attrs.get("rows", "T")) for op in self.program.ops}
        return sorted((paged | {int(r[1:]) for r in rows if r != "T"}) - {1})


Block = Callable[[Tracer, Value, Scope], Value]


def model(shapes: dict[str, tuple[int, ...]], block: Block, *, width: int = 24, layers: int = 2, seed: int = 0) -> Model:
    """Embedding, `layers` blocks with tensors of `shapes` each, norm and head on the wanted rows."""
    per_block = {f"blk.{i}.{n}": s for i in range(layers) for n, s in shapes.items()}
    file = Memory({"token_embd.weight": (31, width), "output.weight": (31, width), **per_block}, seed)
    g = Tracer("tiny", dict(file.tensors))
    w = Scope(g)
    x = g.embed(g.step.tokens, w.token_embd)
    for i in range(layers):
        x = block(g, x, w.block(i))
    g.prefix = ""
    x = g.rms_norm(g.gather_rows(x, g.step.out_rows))
    return Model(g.program(logits=g.linear(x, w.output)), WeightSource(file))


def caches(program: Program, kind: str) -> list[Cache]:
    return [c for c in program.caches if c.kind == kind]
