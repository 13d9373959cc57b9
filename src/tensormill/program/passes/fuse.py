"""The fuse pass: chains of ops become one op where the backend offers it, e.g. `add+rms_norm+quantise`.

The kind of a fused op is its chain's kinds joined by `+`; reshapes inside a chain are views and not named. Its inputs are the
chain's outer inputs in order, its outputs whatever of the chain's values somebody else reads, in order; `body` keeps the
chain, so that the reference can run it and `trace --diff` can look inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tensormill.program.ir import Op, Operand, Program, Value

Quantised = Callable[[Value], bool]


def quantise_inputs(program: Program, quantised: Quantised) -> Program:
    """Quantise each activation once, where it is made, for all products whose weights want int8 activations."""
    codes: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in program.ops:
        x = op.inputs[0] if op.inputs else None
        wants = op.kind in ("linear", "expert_linear") and isinstance(op.inputs[1], Value) and quantised(op.inputs[1])
        if wants and isinstance(x, Value):
            if x not in codes:
                codes[x] = Value(f"{x.name}.q8", x.shape, "q8")
                ops.append(Op("quantise", (x,), (codes[x],)))
            ops.append(replace(op, inputs=(codes[x], *op.inputs[1:])))
        else:
            ops.append(op)
    return replace(program, ops=tuple(ops))


def fuse(program: Program, offers: frozenset[str]) -> Program:
    """Fuse the longest offered chains first."""
    chains = sorted((k.split("+") for k in offers if "+" in k), key=len, reverse=True)
    for chain in chains:
        program = _fuse_chain(program, chain)
    return program


def _fuse_chain(program: Program, chain: Sequence[str]) -> Program:
    place = {op: i for i, op in enumerate(program.ops)}
    consumers = program.consumers()
    taken: set[Op] = set()
    fused: dict[Op, Op] = {}
    for op in program.ops:
        body = _follow(op, chain, consumers, taken)
        if body and _may_move(body, place, consumers):
            taken.update(body)
            fused[body[-1]] = _make(body, chain, program, consumers)
    return replace(program, ops=tuple(fused.get(op, op) for op in program.ops if op in fused or op not in taken))


def _follow(op: Op, chain: Sequence[str], consumers: dict[Value, list[Op]], taken: set[Op]) -> list[Op]:
    """The ops of the chain that starts at `op`, views between them included; empty if it does not match."""
    if op.kind != chain[0] or op in taken:
        return []
    body, rest = [op], list(chain[1:])
    while rest:
        readers = consumers.get(body[-1].outputs[0], []) if len(body[-1].outputs) == 1 else []
        following = [r for r in readers if r.kind == rest[0] and r not in taken and body[-1].outputs[0] in _main(r)]
        views = [r for r in readers if r.kind == "reshape" and r not in taken]
        if following:
            body.append(following[0])
            rest.pop(0)
        elif len(views) == 1:
            body.append(views[0])
        else:
            return []
    return body


def _main(op: Op) -> tuple[Operand, ...]:
    """The operand through which a chain may enter an op."""
    return op.inputs[1:2] if op.kind == "kv_write" else op.inputs[:1]


def _may_move(body: list[Op], place: dict[Op, int], consumers: dict[Value, list[Op]]) -> bool:
    """A fused op stands where its last op stood: everybody else who reads its values must come later."""
    inside, last = set(body), place[body[-1]]
    readers = (r for op in body for v in op.outputs for r in consumers.get(v, []) if r not in inside)
    return all(place[r] > last for r in readers)


def _make(body: list[Op], chain: Sequence[str], program: Program, consumers: dict[Value, list[Op]]) -> Op:
    inside, made = set(body), {v for op in body for v in op.outputs}
    wanted = set(program.outputs.values())
    inputs = [i for op in body for i in op.inputs if not (isinstance(i, Value) and i in made)]
    outputs = [v for op in body for v in op.outputs if v in wanted or any(r not in inside for r in consumers.get(v, []))]
    return Op("+".join(chain), tuple(inputs), tuple(outputs), {}, tuple(body))
