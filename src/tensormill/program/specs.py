"""What every op kind takes and gives: shapes, whether a row depends on that row alone, what it reads of the step.

The meaning is the NumPy function of the same name in `backends/reference`; sharding is in `sharding.py`, cost in `cost.py`.
An op of OPS.md stands here once; backends, passes and the tracer look it up in `SPECS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tensormill.errors import ProgramError
from tensormill.program.ir import Cache, DType, Op, Operand, Shape, Source, Value

Made = list[tuple[Shape, DType]]
Infer = Callable[[Sequence[Any], dict[str, Any]], Made]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One kind: its shape rule; `rowwise` if a row of the output needs that row of the inputs only; `step` if it reads it."""

    kind: str
    infer: Infer
    rowwise: bool = False
    step: bool = False


SPECS: dict[str, OpSpec] = {}


def op(kind: str, *, rowwise: bool = False, step: bool = False) -> Callable[[Infer], Infer]:
    """Register the shape rule of a kind."""

    def register(infer: Infer) -> Infer:
        SPECS[kind] = OpSpec(kind, infer, rowwise, step)
        return infer

    return register


def infer(kind: str, inputs: Sequence[Operand], attrs: dict[str, Any]) -> Made:
    """Shapes and dtypes of an op's outputs; ProgramError when the inputs do not fit its spec."""
    if kind not in SPECS:
        raise ProgramError(f"there is no op {kind!r}; the ops are {', '.join(SPECS)}")
    return SPECS[kind].infer(inputs, attrs)


def is_rowwise(made_by: Op) -> bool:
    """Whether each row of the outputs depends on the same row of the inputs alone."""
    if made_by.kind in ("softmax", "sum", "slice", "concat"):
        return bool(made_by.attrs["axis"] != 0)
    return SPECS[made_by.kind].rowwise


def need(condition: bool, why: str, *values: Operand) -> None:
    """Refuse with the operands named."""
    if not condition:
        raise ProgramError(f"{why}: {', '.join(map(str, values))}")


def broadcast(x: Shape, y: Shape) -> Shape | None:
    """NumPy's broadcasting; a symbol meets itself or 1. None: they do not fit."""
    n = max(len(x), len(y))
    out: list[int | str] = []
    for a, b in zip((*(1,) * (n - len(x)), *x), (*(1,) * (n - len(y)), *y), strict=True):
        if a != b and 1 not in (a, b):
            return None
        out.append(b if a == 1 else a)
    return tuple(out)


def _broadcast(*values: Value) -> Shape:
    shape: Shape | None = values[0].shape
    for value in values[1:]:
        shape = broadcast(shape, value.shape) if shape is not None else None
    need(shape is not None, "the shapes do not broadcast", *values)
    assert shape is not None
    return shape


def _same(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    return [(inputs[0].shape, inputs[0].dtype)]


def _resize(shape: Shape, axis: int, size: int | str) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


# ---- rows and views ----


@op("embed", rowwise=True)
def _embed(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    ids, table = inputs
    need(ids.dtype == "i32" and len(table.shape) == 2, "embed takes ids and a matrix", ids, table)
    integer = table.recipe is not None and table.recipe.cuts[0].type.name == "I32"
    return [((*ids.shape, table.shape[1]), "i32" if integer else "f32")]


@op("gather_rows")
def _gather(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    x, rows = inputs
    return [((rows.shape[0], *x.shape[1:]), x.dtype)]


@op("put_rows")
def _put(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    x, rows, y = inputs
    need(y.shape == (rows.shape[0], *x.shape[1:]), "the rows put must fit", x, rows, y)
    return [(x.shape, "f32")]


@op("reshape", rowwise=True)
def _reshape(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    x, shape = inputs[0], attrs["shape"]
    need(shape[0] == x.shape[0] and prod(shape[1:]) == prod(x.shape[1:]), f"cannot reshape to {list(shape)}", x)
    return [(shape, x.dtype)]


@op("slice")
def _slice(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    x, axis, start, stop = inputs[0], attrs["axis"], attrs["start"], attrs["stop"]
    need(0 < axis < len(x.shape) and 0 <= start < stop <= x.shape[axis], f"cannot cut {start}…{stop} of axis {axis}", x)
    return [(_resize(x.shape, axis, stop - start), x.dtype)]


@op("concat")
def _concat(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    axis, first = attrs["axis"], inputs[0]
    for x in inputs[1:]:
        need(
            axis > 0 and _resize(x.shape, axis, 0) == _resize(first.shape, axis, 0),
            f"cannot join on axis {axis}",
            *inputs,
        )
    return [(_resize(first.shape, axis, sum(x.shape[axis] for x in inputs)), first.dtype)]


# ---- products ----


@op("linear", rowwise=True)
def _linear(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    x, w, b, scale = inputs
    groups = attrs["groups"]
    need(len(w.shape) in (2, 3), "a linear's weight is a matrix", x, w)
    rows, width = (w.shape[0] * w.shape[1], w.shape[2]) if len(w.shape) == 3 else w.shape
    need(x.shape[-1] == width, "the input is not as wide as the weight", x, w)
    need(rows % groups == 0 and (groups == 1 or x.shape[-2] == groups), f"cannot split in {groups} groups", x, w)
    need(b is None or prod(b.shape) == rows, "the bias is not as long as the output", w, b)
    need(scale is None or prod(scale.shape) == 1, "a linear's scale is one number", w, scale)
    return [((*x.shape[:-1], rows // groups), "f32")]


@op("expert_linear", rowwise=True)
def _expert_linear(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    x, w, ids, b, scale = inputs
    need(
        len(w.shape) == 3 and ids.dtype == "i32" and len(ids.shape) == 2,
        "experts need [E, O, I] and ids [T, k]",
        w,
        ids,
    )
    need(
        x.shape[-1] == w.shape[2] and (len(x.shape) == 2 or x.shape[1] == ids.shape[1]),
        "the input does not fit",
        x,
        w,
        ids,
    )
    need(b is None or b.shape == w.shape[:2], "the bias must be [E, O]", w, b)
    need(scale is None or prod(scale.shape) in (1, w.shape[0]), "the scale must be [E] or one number", w, scale)
    return [((*ids.shape, w.shape[1]), "f32")]


@op("hadamard", rowwise=True)
def _hadamard(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    n = attrs["n"]
    need(n & (n - 1) == 0 and inputs[0].shape[-1] % n == 0, f"blocks of {n} must be a power of two and divide", inputs[0])
    return _same(inputs, attrs)


# ---- row-wise arithmetic ----

SPECS["sinkhorn"] = OpSpec("sinkhorn", _same, rowwise=True)
SPECS["softmax"] = OpSpec("softmax", _same)


@op("rms_norm", rowwise=True)
@op("layer_norm", rowwise=True)
def _norm(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    x = inputs[0]
    for w in inputs[1:]:
        fits = w is None or (w.shape[-1] == x.shape[-1] and _broadcast(x, w) == x.shape)
        need(fits, "a norm's gains must be as wide as its input", x, w)
    return _same(inputs, attrs)


@op("unary", rowwise=True)
def _unary(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    x = inputs[0]
    return [(x.shape, x.dtype if attrs["kind"] == "mod" else "f32")]  # an index stays whole only under mod


@op("sum")
def _sum(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    shape, axis = inputs[0].shape, attrs["axis"]
    return [((*shape[:axis], *shape[axis + 1 :]), "f32")]


@op("add", rowwise=True)
@op("mul", rowwise=True)
def _binary(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    return [(_broadcast(inputs[0], inputs[1]), "f32")]


@op("where", rowwise=True)
def _where(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    return [(_broadcast(*inputs), inputs[1].dtype)]


@op("angles", step=True)
def _angles(_inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    return [((attrs["rows"], len(attrs["freq"]), 2), "f32")]


@op("rope", rowwise=True)
def _rope(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    x, cs = inputs
    need(
        len(x.shape) == 3 and x.shape[0] == cs.shape[0] and 2 * cs.shape[1] <= x.shape[2],
        "the angles do not fit",
        x,
        cs,
    )
    return [(x.shape, "f32")]


@op("route", rowwise=True)
def _route(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    score, bias, ids = inputs
    rows, experts = score.shape
    need(bias is None or bias.shape == (experts,), "the bias must have one number an expert", score, bias)
    k = ids.shape[1] if ids is not None else attrs["k"]
    need(0 < k <= experts and experts % attrs["groups"] == 0, f"cannot choose {k} experts", score)
    return [((rows, k), "i32"), ((rows, k), "f32")]


@op("mix", rowwise=True)
def _mix(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    w, x = inputs
    need(w.shape[:2] == x.shape[:2] and len(x.shape) == 3, "weights and rows must pair", w, x)
    return [((x.shape[0], *w.shape[2:], x.shape[2]), "f32")]


# ---- sequences and caches ----


@op("kv_write", step=True)
def _kv_write(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    cache, k, v = inputs
    need(cache.kind == "paged" and k.shape[1:] == cache.k, "keys must be [·, G, K] of their cache", cache, k)
    need(
        (v is None) == (cache.v is None) and (v is None or v.shape[1:] == cache.v),
        "values must fit the cache",
        cache,
        v,
    )
    return []


def sources_of(inputs: Sequence[Operand], attrs: dict[str, Any] | Any) -> list[tuple[Any, Value | None, Value | None, Source]]:
    """An attention's sources as (cache or own keys, own values, selected ids, how)."""
    out: list[tuple[Any, Value | None, Value | None, Source]] = []
    rest = list(inputs[3:])
    for source in attrs["sources"]:
        rows, values, ids = rest[:3]
        del rest[:3]
        assert not isinstance(values, Cache) and not isinstance(ids, Cache)
        out.append((rows, values, ids, source))
    return out


@op("attention", step=True)
def _attention(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    q, sinks = inputs[:2]
    rows, heads, width = q.shape
    need(sinks is None or sinks.shape == (heads,), "sinks must have one number a head", q, sinks)
    out = attrs["v_dim"]
    for keys, values, _ids, source in sources_of(inputs, attrs):
        group, key_width = keys.k if source.cache else keys.shape[1:]
        need(heads % group == 0 and key_width == width, "queries and keys do not fit", q, keys)
        v = (keys.v if source.cache else values and values.shape[1:]) or keys.k
        out = out or v[1]
    return [((rows, heads, out), "f32")]


@op("indexer", step=True)
def _indexer(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    q, w, cache, _within = inputs
    need(cache.k == (1, q.shape[2]) and w.shape == q.shape[:2], "queries, weights and one key a row must fit", q, w, cache)
    return [((inputs[0].shape[0], attrs["k"]), "i32")]


@op("tail", step=True)
def _tail(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    x, ring = inputs
    need(ring.kind == "ring" and prod(x.shape[1:]) == ring.width, "the ring is not as wide as the rows", x, ring)
    return [((attrs["rows"], ring.back + 1, *x.shape[1:]), "f32")]


@op("ssm_scan", step=True)
def _ssm_scan(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    x, dt, a, b, c, state = inputs
    need(x.shape[1:] == state.shape[:2] and dt.shape == x.shape[:2], "rows and state do not fit", x, dt, state)
    need(
        b.shape == c.shape and x.shape[1] % b.shape[1] == 0 and b.shape[2] == state.shape[2], "B and C do not fit", b, c, state
    )
    need(prod(a.shape) in (x.shape[1], x.shape[1] * state.shape[2]), "A must have 1 or N numbers a head", a, state)
    return [(x.shape, "f32")]


@op("delta_rule", step=True)
def _delta_rule(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    q, k, v, beta, g, state = inputs
    need(q.shape == k.shape and v.shape[1] % q.shape[1] == 0 and beta.shape == v.shape[:2], "heads do not fit", q, k, v, beta)
    need(g.shape[1] == v.shape[1] and g.shape[2] in (1, q.shape[2]), "decay must be [T,H,1 or K]", g, v)
    need(state.shape == (v.shape[1], q.shape[2], v.shape[2]), "rows and state do not fit", q, v, state)
    return [(v.shape, "f32")]


@op("pool", step=True)
def _pool(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    return [(("S", *inputs[0].shape[1:]), "f32")]


@op("top_k", rowwise=True)
def _top_k(inputs: Sequence[Any], attrs: dict[str, Any]) -> Made:
    rows, k = inputs[0].shape[0], attrs["k"]
    return [((rows, k), "f32"), ((rows, k), "i32"), ((rows,), "f32")]


# ---- from passes ----


@op("quantise", rowwise=True)
def _quantise(inputs: Sequence[Any], _attrs: dict[str, Any]) -> Made:
    need(inputs[0].shape[-1] % 32 == 0, "activations are quantised in blocks of 32", inputs[0])
    return [(inputs[0].shape, "q8")]
