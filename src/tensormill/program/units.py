"""Whole units that strips must consist of: quantised blocks, heads, groups, blocks of a transform (OPS.md §5)."""

from __future__ import annotations

from math import lcm

from tensormill.program.ir import Cache, Op, Value
from tensormill.program.specs import sources_of
from tensormill.program.states import follow, inside, number, shape_of


def unit(op: Op, i: int, axis: int) -> int:
    """Strips of this axis of input i must be multiples of it (blocks of a quantised weight, heads that share a key)."""
    operand, attrs = op.inputs[i], op.attrs
    if op.kind in ("attention", "delta_rule", "ssm_scan"):
        return _heads(op, i)
    shape = shape_of(op, i)
    if op.kind == "linear" and i in (1, 2) and axis == 0 and len(shape) < 3:
        return number(shape[0]) // int(attrs["groups"]) if attrs["groups"] > 1 else 1
    if op.kind == "reshape":
        there = follow(shape, op.outputs[0].shape, axis)
        return 1 if there is None else max(1, inside(op.outputs[0].shape, there) // inside(shape, axis))
    if axis != len(shape) - 1:
        return 1
    if isinstance(operand, Value) and operand.recipe is not None:
        return lcm(*(cut.type.block for cut in operand.recipe.cuts))
    return int({"hadamard": attrs.get("n"), "quantise": attrs.get("block", 32)}.get(op.kind) or 1)


def _heads(op: Op, i: int) -> int:
    if op.kind == "attention" and i == 0:
        heads = number(shape_of(op, 0)[1])
        groups = [s.k[0] if isinstance(s, Cache) else s.shape[1] for s, *_ in sources_of(op.inputs, op.attrs)]
        return lcm(*(heads // number(g) for g in groups))
    if op.kind == "delta_rule" and i in (2, 3, 4, 5) and op.attrs["map"] == "repeat":
        return number(shape_of(op, 2)[1]) // number(shape_of(op, 0)[1])
    if op.kind == "ssm_scan" and i in (0, 1, 2, 5):
        return number(shape_of(op, 0)[1]) // number(shape_of(op, 3)[1])
    return 1
