"""What an op costs (OPS.md §3): bytes of weights and caches read, bytes of values, floating-point operations.

For the planner and the benches; a lower bound of work, not a prediction of time. Elements are float32 unless they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2, prod
from typing import Any

from tensormill.program.ir import Cache, Op, Program, Shape, Source, Value
from tensormill.program.recipe import Recipe
from tensormill.program.specs import sources_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """What symbols stand for, and what a sequence has seen: `rows` tokens in its caches on average, this step's included."""

    tokens: int = 1  # T
    sequences: int = 1  # S
    logits: int = 1  # R
    media: int = 0  # M
    rows: int = 1
    kv_bytes: float = 2.0  # of one stored number

    def number(self, dim: int | str) -> int:
        """The size of a dimension; of C_r the expected number of completed entries."""
        if isinstance(dim, int):
            return dim
        if dim.startswith("C"):
            return self.tokens // int(dim[1:])
        return {"T": self.tokens, "S": self.sequences, "R": self.logits, "M": self.media}[dim]

    def elements(self, shape: Shape) -> int:
        """Elements of a shape."""
        return prod(map(self.number, shape))

    def seen(self, cache: Cache) -> int:
        """Rows of a paged cache that a sequence's last token sees."""
        tokens = min(self.rows, cache.window) if cache.window else self.rows
        return tokens // cache.ratio


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of weights and of caches, bytes of inputs and outputs, operations."""

    weights: float = 0.0
    caches: float = 0.0
    values: float = 0.0
    flops: float = 0.0

    @property
    def bytes(self) -> float:
        """All bytes."""
        return self.weights + self.caches + self.values


def cost(op: Op, sizes: Sizes) -> Cost:
    """The cost of an op; a fused op does the work of its body without moving the values that it hides."""
    if op.body:
        inner = [cost(o, sizes) for o in op.body]
        weights, caches, flops = (sum(getattr(c, name) for c in inner) for name in ("weights", "caches", "flops"))
        return Cost(weights, caches, _moved(op, sizes), flops)
    weights = sum(stored_bytes(v.recipe) for v in op.values if v.role == "weight" and v.recipe)
    caches = CACHES[op.kind](op, sizes) if op.kind in CACHES else 0.0
    return Cost(weights * _share(op, sizes), caches, _moved(op, sizes), FLOPS.get(op.kind, _elementwise)(op, sizes))


def total(program: Program, sizes: Sizes) -> Cost:
    """The cost of a whole step."""
    costs = [cost(op, sizes) for op in program.ops]
    return Cost(*(sum(getattr(c, name) for c in costs) for name in ("weights", "caches", "values", "flops")))


def stored_bytes(recipe: Recipe) -> int:
    """Bytes that a weight takes in its file."""
    size = 0
    for cut in recipe.cuts:
        experts = cut.experts[1] - cut.experts[0] if cut.experts else 1
        size += experts * (cut.rows[1] - cut.rows[0]) * cut.type.row_bytes(cut.cols[1] - cut.cols[0])
    return size


def _share(op: Op, sizes: Sizes) -> float:
    """The share of an op's weights that it reads: wanted rows of a table; experts if tokens choose evenly."""
    if op.kind == "embed":
        ids, table = op.values
        return min(1.0, sizes.elements(ids.shape) / sizes.number(table.shape[0]))
    if op.kind == "expert_linear":
        _x, w, ids = list(op.values)[:3]
        return float(1 - (1 - sizes.number(ids.shape[1]) / sizes.number(w.shape[0])) ** sizes.number(ids.shape[0]))
    return 1.0


def _moved(op: Op, sizes: Sizes) -> float:
    """Bytes of values read and written; views move nothing, a gather reads only what it takes."""
    if op.kind in ("reshape", "slice"):
        return 0.0
    operands = [*(v for v in op.values if v.role != "weight"), *op.outputs]
    if op.kind == "gather_rows":
        operands = [op.outputs[0], *operands[1:]]
    return float(sum((1.125 if v.dtype == "q8" else 4) * sizes.elements(v.shape) for v in operands))


# ---- operations ----

PER_ELEMENT = {
    "rms_norm": 4,
    "layer_norm": 6,
    "softmax": 5,
    "sum": 1,
    "add": 1,
    "mul": 1,
    "where": 1,
    "rope": 3,
    "pool": 1,
    "top_k": 1,
}
PER_UNARY = {"affine": 2, "clamp": 2, "relu": 1, "relu2": 2, "sqrt": 1, "floor": 1, "mod": 2}  # the others hold an exp: 10


def _elementwise(op: Op, sizes: Sizes) -> float:
    per = PER_UNARY.get(op.attrs["kind"], 10) if op.kind == "unary" else PER_ELEMENT.get(op.kind, 0)
    return float(per * max((sizes.elements(v.shape) for v in (*op.values, *op.outputs)), default=0)) if per else 0.0


def _product(op: Op, sizes: Sizes) -> float:
    """2·I for each element of the output."""
    return 2.0 * sizes.elements(op.outputs[0].shape) * sizes.number(next(op.values).shape[-1])


def _attention(op: Op, sizes: Sizes) -> float:
    tokens, heads, width = map(sizes.number, next(op.values).shape)
    wide = sizes.number(op.outputs[0].shape[2])
    return 2.0 * tokens * heads * (width + wide) * sum(_rows(s, sizes) for s in sources_of(op.inputs, op.attrs))


def _rows(source: tuple[Any, Value | None, Value | None, Source], sizes: Sizes) -> float:
    """Rows that the last token of a sequence sees of a source."""
    rows, _values, ids, how = source
    seen = sizes.seen(rows) if how.cache else sizes.tokens / sizes.sequences
    return min(seen, sizes.number(ids.shape[1]) * how.span) if ids is not None else seen


def _indexer(op: Op, sizes: Sizes) -> float:
    (cache,) = op.caches
    return 2.0 * sizes.elements(next(op.values).shape) * sizes.seen(cache)


def _of_state(per: int) -> Callable[[Op, Sizes], float]:
    return lambda op, sizes: float(per * sizes.tokens * prod(next(op.caches).shape))


FLOPS: dict[str, Callable[[Op, Sizes], float]] = {
    "linear": _product,
    "expert_linear": _product,
    "hadamard": lambda op, sizes: sizes.elements(op.outputs[0].shape) * log2(op.attrs["n"]),
    "mix": lambda op, sizes: 2.0 * sizes.elements(next(op.values).shape) * sizes.number(op.outputs[0].shape[-1]),
    "sinkhorn": lambda op, sizes: (5.0 + 4 * op.attrs["iters"]) * sizes.elements(op.outputs[0].shape),
    "attention": _attention,
    "indexer": _indexer,
    "ssm_scan": _of_state(6),
    "delta_rule": _of_state(7),
}


# ---- bytes of caches ----


def _row(cache: Cache, sizes: Sizes) -> float:
    """Bytes of a row of all KV heads."""
    return sizes.kv_bytes * (prod(cache.k) + prod(cache.v or (0,)))


def _read(op: Op, sizes: Sizes) -> float:
    """Visible rows once a KV head and sequence; of selected rows each token's, at most all."""
    size = 0.0
    for source in sources_of(op.inputs, op.attrs):
        if source[3].cache:
            each = sizes.tokens / sizes.sequences if source[3].select else 1
            size += sizes.sequences * min(_rows(source, sizes) * each, sizes.seen(source[0])) * _row(source[0], sizes)
    return size


def _stored(op: Op, sizes: Sizes) -> float:
    return sizes.number(next(op.values).shape[0]) * _row(next(op.caches), sizes)


CACHES: dict[str, Callable[[Op, Sizes], float]] = {
    "kv_write": _stored,
    "attention": _read,
    "indexer": lambda op, sizes: sizes.sequences * sizes.seen(next(op.caches)) * _row(next(op.caches), sizes),
    "tail": lambda op, sizes: 4.0 * sizes.sequences * next(op.caches).back * next(op.caches).width,
    "ssm_scan": lambda op, sizes: 8.0 * sizes.sequences * prod(next(op.caches).shape),
    "delta_rule": lambda op, sizes: 8.0 * sizes.sequences * prod(next(op.caches).shape),
}
