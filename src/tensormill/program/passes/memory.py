"""The memory plan: one arena for the values of a program, laid out once for the largest step.

A value lives from the op that makes it to the last op that reads it; values whose lives do not meet share bytes. Smaller steps
use the same offsets. A reshape is a view: it shares its input's place. Outputs live to the end.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from tensormill.program.ir import Program, Value

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Byte offset of each value in an arena of `size` bytes."""

    offsets: dict[Value, int]
    size: int


class _Arena:
    """First-fit allocation of byte ranges; `size` is the highest end ever used."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # (start, end), ascending, not touching

    def take(self, size: int) -> int:
        for i, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[i : i + 1] = [(start + size, end)] if end - start > size else []
                return start
        start = self._free.pop()[0] if self._free and self._free[-1][1] == self.size else self.size
        self.size = start + size
        return start

    def give(self, start: int, size: int) -> None:
        insort(self._free, (start, start + size))
        joined: list[tuple[int, int]] = []
        for a, b in self._free:
            if joined and joined[-1][1] == a:
                joined[-1] = (joined[-1][0], b)
            else:
                joined.append((a, b))
        self._free = joined


def plan_memory(program: Program, bytes_of: Callable[[Value], int]) -> Plan:
    """Places for all temporary values; `bytes_of` says how many bytes a value needs in the largest step."""
    owner = _views(program)
    last = {owner.get(v, v): i for i, op in enumerate(program.ops) for v in (*op.values, *op.outputs)}
    last.update({owner.get(v, v): len(program.ops) for v in program.outputs.values()})
    arena, offsets = _Arena(), dict[Value, int]()
    sizes: dict[Value, int] = {}
    ends: dict[int, list[Value]] = {}
    for i, op in enumerate(program.ops):
        for value in op.outputs:
            if value in owner:
                offsets[value] = offsets.get(owner[value], -1)
                continue
            if value in offsets:  # several ops fill it
                continue
            sizes[value] = -(-max(bytes_of(value), 1) // ALIGN) * ALIGN
            offsets[value] = arena.take(sizes[value])
            ends.setdefault(last[value], []).append(value)
        for value in ends.pop(i, ()):
            arena.give(offsets[value], sizes[value])
    return Plan(offsets, arena.size)


def _views(program: Program) -> dict[Value, Value]:
    """Reshaped value → the value whose bytes it shows."""
    owner: dict[Value, Value] = {}
    for op in program.ops:
        if op.kind == "reshape":
            (x,) = op.values
            if x.role == "temp":
                owner[op.outputs[0]] = owner.get(x, x)
    return owner
