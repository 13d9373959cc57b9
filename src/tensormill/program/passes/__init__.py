"""Passes: programs in, programs out, in the order of OPS §7.

`prepare` runs those that need no second device; `plan_memory` gives the values of the result their places. Each pass keeps
names, so that a fused program can be compared with the plain one value by value.
"""

from __future__ import annotations

from tensormill.program.ir import Program
from tensormill.program.passes.fuse import Quantised, fuse, quantise_inputs
from tensormill.program.passes.memory import Plan, plan_memory
from tensormill.program.passes.merge import merge
from tensormill.program.passes.rows import move_rows_up, remove_dead

__all__ = ["Plan", "fuse", "merge", "move_rows_up", "plan_memory", "prepare", "quantise_inputs", "remove_dead"]


def prepare(program: Program, offers: frozenset[str] = frozenset(), quantised: Quantised | None = None) -> Program:
    """The program as a backend runs it.

    `offers`: kinds beyond the plain ops that the backend has (`linears`, `add+rms_norm+quantise`, …); `quantised` tells which
    weights want int8 activations (None: the backend quantises inside its products, or not at all).
    """
    program = remove_dead(move_rows_up(program))
    if quantised is not None:
        program = quantise_inputs(program, quantised)
    return fuse(merge(program, offers), offers)
