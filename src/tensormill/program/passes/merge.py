"""The merge pass: products that share an input become one op, so that the input is read, and handed out to threads, once.

q, k and v; gate and up; the gate and up of all experts. Weights may be of different types (Q4_K_M mixes them): each stays a
part of its own. `linears` has operands x, then (w, b, scale) a part; `expert_linears` x, ids, then (w, b, scale) a part.
"""

from __future__ import annotations

from dataclasses import replace

from tensormill.program.ir import Op, Operand, Program, Value

KINDS = {"linear": "linears", "expert_linear": "expert_linears"}


def merge(program: Program, offers: frozenset[str]) -> Program:
    """Join what the backend offers to join, at the place of the first; the others' inputs are there already or are weights."""
    groups: dict[object, list[Op]] = {}
    for op in program.ops:
        if KINDS.get(op.kind) in offers and op.attrs.get("groups", 1) == 1:
            groups.setdefault((op.kind, *_shared(op)), []).append(op)
    joined = {ops[0]: _join(ops) for ops in groups.values() if len(ops) > 1}
    gone = {op for ops in groups.values() if len(ops) > 1 for op in ops[1:]}
    return replace(program, ops=tuple(joined.get(op, op) for op in program.ops if op not in gone))


def _shared(op: Op) -> tuple[Operand, ...]:
    return (op.inputs[0], op.inputs[2]) if op.kind == "expert_linear" else (op.inputs[0],)


def _join(ops: list[Op]) -> Op:
    first = ops[0]
    inputs: list[Operand] = list(_shared(first))
    for op in ops:
        w, b, scale = (op.inputs[1], *op.inputs[-2:])
        inputs += [w, b, scale]
    outputs: tuple[Value, ...] = tuple(v for op in ops for v in op.outputs)
    return Op(KINDS[first.kind], tuple(inputs), outputs, {"parts": len(ops)}, body=tuple(ops))
