"""How ops that read or write caches become records."""

from __future__ import annotations

from math import prod

from tensormill.backends.cpu.caches import STYLES, Pages, padded
from tensormill.backends.cpu.lower import Lowering, Object, rule
from tensormill.backends.cpu.native import native
from tensormill.backends.cpu.view import View
from tensormill.errors import BackendError
from tensormill.program.ir import Cache, Op, Value
from tensormill.program.specs import sources_of

MOST_SOURCES = 4  # csrc/ops/attention.cpp
MOST_LATENT = 1024  # csrc/ops/attention.cpp: a key is read to the room for values
WORK_BYTES = 4 << 20  # most that a decode over a long past may use for partial sums
SPLIT_TOKENS = 64  # tokens of a step for which such partial sums are provided


@rule("kv_write")
def _kv_write(g: Lowering, op: Op) -> None:
    cache, k, v = op.inputs
    rows = None
    if op.attrs["rows"] != "T":
        rows = g.step_input(f"done{op.attrs['rows'][1:]}", (op.attrs["rows"],))
    g.emit("kv_write", (g.dense(k), g.dense(v) if v is not None else None, rows), (), (g.cache(cache),))


@rule("attention")
def _attention(g: Lowering, op: Op) -> None:
    q, a = g.dense(op.inputs[0]), op.attrs
    sources = sources_of(op.inputs, a)
    if len(sources) > MOST_SOURCES:
        raise BackendError(f"the CPU backend attends to at most {MOST_SOURCES} sources at once: {op}")
    bias = g.maybe(op.inputs[2])
    if bias is not None and len(bias.shape) != 2:
        raise BackendError(f"the CPU backend wants an attention bias of [buckets, H]: {op}")
    operands: list[View | None] = [q, g.maybe(op.inputs[1]), bias]
    objects: list[Object | None] = []
    ints = [len(sources), a["buckets"]]
    kv_heads = set()
    for rows, values, ids, how in sources:
        if isinstance(rows, Cache):
            pages = g.cache(rows)
            assert isinstance(pages, Pages)
            objects.append(pages)
            kv_heads.add(rows.k[0])
            if rows.v is None and rows.k[1] > MOST_LATENT:
                raise BackendError(f"the CPU backend wants keys without values of at most {MOST_LATENT} numbers: {op}")
            own: tuple[View | None, View | None] = (None, None)
            ints += [1, how.span, STYLES[rows.style], rows.window]
        else:
            assert isinstance(rows, Value)
            objects.append(None)
            kv_heads.add(int(rows.shape[1]))
            own = g.dense(rows), g.dense(values) if values is not None else None
            ints += [0, how.span, STYLES[a["style"]], a["window"] if a["style"] != "causal" else 0]
        operands += [*own, g.rows(ids) if ids is not None else None]
    if len(kv_heads) > 1:
        raise BackendError(f"the CPU backend wants as many KV heads in every source of an attention: {op}")
    out = g.make(op.outputs[0])
    heads, width, values_width = int(q.shape[1]), int(q.shape[2]), int(out.shape[2])
    work = g.temp((_work_floats(g, heads, values_width),), "partial")
    g.scratch = max(g.scratch, native().attention_scratch(heads // kv_heads.pop(), width, values_width))
    g.emit("attention", operands, (out, work), objects, ints, (a["scale"], a["softcap"], a["alibi"]))


def _work_floats(g: Lowering, heads: int, values: int) -> int:
    """Room for partial sums of a few tokens over the longest past: spans of 256 rows."""
    spans = max(g.limits.pages.values()) * g.limits.page // 256 + 2
    wanted = min(g.limits.tokens, SPLIT_TOKENS) * heads * (padded(values) + 2) * spans
    return min(wanted, WORK_BYTES // 4) + 4096


@rule("tail")
def _tail(g: Lowering, op: Op) -> None:
    x, ring = op.inputs
    symbol = op.attrs["rows"]
    rows = g.step_input(f"done{symbol[1:]}", (symbol,)) if symbol != "T" else None
    slots = g.cache(ring)
    out = g.make(op.outputs[0])
    flat = out.reshape((out.shape[0], slots.cache.back + 1, slots.cache.width))
    assert flat is not None
    g.emit("tail", (g.wide(x), rows), (flat,), (slots,), (slots.cache.back,), (op.attrs["pad"],))


@rule("ssm_scan")
def _ssm_scan(g: Lowering, op: Op) -> None:
    x, dt, a, b, c, state = op.inputs
    rows = [g.wide(v) for v in (x, dt, b, c)]
    slots = g.state(state, sum(int(v.shape[1]) for v in rows))
    heads, width, n = slots.cache.shape
    numbers = prod(int(d) for d in g.view(a).shape)
    decay = g.view(a).reshape((heads, numbers // heads))
    out = g.make(op.outputs[0]).wide()
    assert decay is not None and out is not None
    groups = int(rows[2].shape[1]) // n
    g.scratch = max(g.scratch, (width * n + 16) * 4)
    g.emit("ssm_scan", (*rows, decay), (out,), (slots,), (heads, width, groups, n))


@rule("delta_rule")
def _delta_rule(g: Lowering, op: Op) -> None:
    rows = [g.wide(v) for v in op.inputs[:5]]
    slots = g.state(op.inputs[5], sum(int(v.shape[1]) for v in rows))
    heads, k, v = slots.cache.shape
    out = g.make(op.outputs[0]).wide()
    assert out is not None
    g.scratch = max(g.scratch, (k * v + k + 64) * 4)
    ints = (heads, int(rows[0].shape[1]) // k, k, v, int(op.attrs["map"] == "tile"))
    g.emit("delta_rule", rows, (out,), (slots,), ints)


@rule("indexer")
def _indexer(g: Lowering, op: Op) -> None:
    q, w, keys, within = op.inputs
    pages = g.cache(keys)
    assert isinstance(pages, Pages)
    if pages.cache.v is not None or pages.cache.k[0] != 1:
        raise BackendError(f"the CPU backend wants one key and no value a row for an indexer: {op}")
    query = g.dense(q)
    heads, width = int(query.shape[1]), int(query.shape[2])
    most = g.limits.pages[pages.cache.window] * g.limits.page // pages.cache.ratio
    g.scratch = max(g.scratch, 4 * (most + 192 + width * 65 + heads * width + heads * 64 + 80))
    operands = (query, g.rows(w), g.rows(within) if within is not None else None)
    g.emit("indexer", operands, (g.make(op.outputs[0]),), (pages,), (op.attrs["block"], op.attrs["span"], most))
