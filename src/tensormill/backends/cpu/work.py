"""The work of each native record: bytes of weights, caches and values, and operations, for given sizes of a step.

A lower bound, made from the ops' costs (`program.cost`): what has to be done, not what a kernel does. Products are counted
record by record, for an op of several weights can become several of them; the rest of an op counts at its last record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensormill.backends.cpu.lower import Record
from tensormill.backends.cpu.view import ITEM, View
from tensormill.backends.cpu.weights import Member, Packed, Reads
from tensormill.program.cost import Sizes, cost
from tensormill.program.ir import Cache, Op, Value
from tensormill.program.kv import INTEGERS, KVType

PRODUCTS = ("linears", "expert_linears")
MADE_FOR_OTHERS = ("quantise", "copy", "group")  # what the lowering adds before an op's own record


@dataclass(frozen=True, slots=True)
class Work:
    """One record: its kernel, the value it makes, the types of its weights, bytes, operations."""

    kernel: str
    name: str
    types: str = ""
    weights: float = 0.0
    caches: float = 0.0
    values: float = 0.0
    operations: float = 0.0
    reads: Reads = "values"  # of its products: 8-bit codes, 16-bit words or float32


def works(records: Sequence[Record], sizes: Sizes, kv_type: KVType) -> list[Work]:
    """The work of each record, with caches of that type."""
    last = {id(r.op): n for n, r in enumerate(records) if r.op and r.kernel not in MADE_FOR_OTHERS}
    out = []
    for n, r in enumerate(records):
        own = r.op if r.op and last.get(id(r.op)) == n else None
        out.append(_product(r, sizes) if r.kernel in PRODUCTS else _other(r, own, sizes, kv_type))
    return out


def _name(op: Op | None) -> str:
    """What an op makes, or the cache that it writes."""
    made: list[Value | Cache] = [*op.outputs, *op.caches] if op else []
    return made[0].name if made else ""


def _begun(r: Record, sizes: Sizes) -> Work:
    views = [v for v in (*r.inputs, *r.outputs) if v is not None and v.storage.array is None]
    return Work(r.kernel, _name(r.op), values=sum(_bytes(v, sizes) for v in views))


def _other(r: Record, op: Op | None, sizes: Sizes, kv_type: KVType) -> Work:
    if op is None:
        return _begun(r, sizes)
    whole = cost(op, sizes)
    types = sorted({c.type.name for v in op.values if v.role == "weight" and v.recipe for c in v.recipe.cuts})
    reads: Reads = "words" if attends_in_integers(op, kv_type) else "values"
    return Work(r.kernel, _name(op), "+".join(types), whole.weights, whole.caches, whole.values, whole.flops, reads)


def attends_in_integers(op: Op, kv_type: KVType) -> bool:
    """Whether this is attention whose products are those of 16-bit integers: over caches that keep values beside keys."""
    return op.kind == "attention" and kv_type in INTEGERS and all(cache.v is not None for cache in op.caches)


def _product(r: Record, sizes: Sizes) -> Work:
    x = r.inputs[0]
    assert x is not None
    tokens = sizes.number(x.shape[0]) * x.times
    packed = [p.whole if isinstance(p, Member) else p for p in r.objects if isinstance(p, Packed | Member)]
    share, pairs, expert = 1.0, tokens, r.kernel == "expert_linears"
    if expert:
        assert r.op is not None
        ids = next(v for v in r.op.values if isinstance(v, Value) and v.dtype == "i32")
        used, pairs = sizes.number(ids.shape[1]), sizes.elements(ids.shape)
        share = 1 - (1 - used / packed[0].count) ** sizes.number(ids.shape[0])
    weights = sum((p.count if expert else 1) * p.rows * p.type.row_bytes(p.columns) for p in packed)
    return replace(
        _begun(r, sizes),
        types="+".join(sorted({p.type.name for p in packed})),
        weights=share * weights,
        operations=sum(2.0 * pairs * p.rows * p.columns for p in packed),
        reads=packed[0].reads,
    )


def _bytes(view: View, sizes: Sizes) -> float:
    name = view.storage.value.name if view.storage.value is not None else ""
    return {"codes": 1, "words": 2}.get(name, ITEM) * view.times * sizes.elements(view.shape)
