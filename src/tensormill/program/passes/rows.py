"""The rows pass: work on the wanted rows only, from as early in the program as their meaning allows; and dead-code removal.

A model file gathers `out_rows` before its last norm. Everything between there and the last op that looks across rows
(attention, a scan) treats each row alone, so the gather moves up through it: the last block's feed-forward and the head then
see R rows, not T.
"""

from __future__ import annotations

from dataclasses import replace

from tensormill.program.ir import Op, Operand, Program, Value
from tensormill.program.specs import infer, is_rowwise


def remove_dead(program: Program) -> Program:
    """Drop ops whose values nobody reads; what writes a cache stays."""
    needed = set(program.outputs.values())
    kept: list[Op] = []
    for op in reversed(program.ops):
        if needed.intersection(op.outputs) or op.kind in ("kv_write", "tail") or any(c.kind == "state" for c in op.caches):
            kept.append(op)
            needed.update(op.values)
    return replace(program, ops=tuple(reversed(kept)))


def move_rows_up(program: Program) -> Program:
    """Move each gather of step rows up through row-wise ops, as long as nobody else reads what it gathers from."""
    while (moved := _move_one(program)) is not None:
        program = moved
    return program


def _move_one(program: Program) -> Program | None:
    for gather in program.ops:
        if gather.kind != "gather_rows":
            continue
        x, rows = gather.inputs
        assert isinstance(x, Value) and isinstance(rows, Value)
        maker = next((op for op in program.ops if x in op.outputs), None)
        if (
            maker is None
            or rows.role != "input"
            or not is_rowwise(maker)
            or len(maker.outputs) != 1
            or x in program.outputs.values()
        ):
            continue
        gathers = _readers(program, x)
        if all(c.kind == "gather_rows" and c.inputs[1] is rows for c in gathers):
            readers = {op for g in gathers for op in _readers(program, g.outputs[0])}
            return _swap(program, maker, gathers, rows, readers)
    return None


def _readers(program: Program, value: Value) -> list[Op]:
    """The ops that read a value: of a few values cheaper than `Program.consumers`, which tells of all."""
    return [op for op in program.ops if value in op.inputs]


def _swap(program: Program, maker: Op, gathers: list[Op], rows: Value, readers: set[Op]) -> Program:
    """gather(f(a, b)) → f(gather(a), gather(b)); all gathers of f's value, which `readers` read, become that one."""
    (whole,) = maker.outputs
    made: dict[Value, Value] = {}
    new: list[Op] = []

    def gathered(operand: Operand) -> Operand:
        if not isinstance(operand, Value) or not operand.shape or operand.shape[0] != whole.shape[0]:
            return operand
        if operand not in made:
            made[operand] = Value(f"{operand.name}.rows", (rows.shape[0], *operand.shape[1:]), operand.dtype)
            new.append(Op("gather_rows", (operand, rows), (made[operand],)))
        return made[operand]

    inputs = tuple(gathered(i) for i in maker.inputs)
    attrs = dict(maker.attrs)
    if maker.kind == "reshape":
        attrs["shape"] = (rows.shape[0], *attrs["shape"][1:])
    ((shape, dtype),) = infer(maker.kind, inputs, attrs)
    result = Value(whole.name, shape, dtype)
    new.append(replace(maker, inputs=inputs, outputs=(result,), attrs=attrs))
    renamed = {g.outputs[0]: result for g in gathers}
    ops: list[Op] = []
    for op in program.ops:
        if op is maker:
            continue
        if op is gathers[0]:
            ops.extend(new)
        elif op not in gathers:
            ops.append(rename(op, renamed) if op in readers else op)
    return replace(program, ops=tuple(ops), outputs={k: renamed.get(v, v) for k, v in program.outputs.items()})


def rename(op: Op, new: dict[Value, Value]) -> Op:
    """The op with some of its input values replaced."""
    if not any(v in new for v in op.values):
        return op
    return replace(op, inputs=tuple(new.get(i, i) if isinstance(i, Value) else i for i in op.inputs))
