"""The states that a value may have over ranks (OPS.md §5), and how axes of shapes correspond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from tensormill.program.ir import Cache, Op, Value


@dataclass(frozen=True, slots=True)
class State:
    """What a rank has of a value: all of it, a strip of an axis, a part of the sum, or whole rows and zeros elsewhere.

    `every`: an axis that repeats units of that length (0: none) is cut in each of them alike, as heads that tile their keys
    need. `place`: what decides which rank owns a row; values of one place have each row on the same rank. Of a cache, axis 0
    is KV heads, channels of a ring, heads of a state. Owned ids are local to the rank, −1 where the row is elsewhere.
    """

    kind: Literal["full", "split", "part", "own"]
    axis: int = 0
    every: int = 0
    place: str = ""


FULL = State("full")
PART = State("part")
States = Sequence[State | None]


def split(axis: int, every: int = 0) -> State:
    """Strips of an axis."""
    return State("split", axis, every)


def own(place: str) -> State:
    """Whole rows, where `place` puts them."""
    return State("own", place=place)


def shape_of(op: Op, i: int) -> tuple[int | str, ...]:
    """Shape of input i; of a weight stack all three axes; empty if there is none."""
    operand = op.inputs[i]
    return operand.shape if isinstance(operand, Value | Cache) else ()


def number(dim: int | str) -> int:
    """A size that is a number: only the first axis is a symbol, and it is never split."""
    assert isinstance(dim, int), f"the size of {dim} is not known while a model is traced"
    return dim


def inside(shape: Sequence[int | str], axis: int) -> int:
    """Elements of one step along an axis."""
    return prod(number(n) for n in shape[axis + 1 :])


def follow(shape: Sequence[int | str], to: Sequence[int | str], axis: int) -> int | None:
    """The axis of `to` that starts where `axis` starts; the last of several that differ by axes of size 1."""
    before = prod(number(n) for n in shape[1:axis])
    fits = [b for b in range(1, len(to)) if prod(number(n) for n in to[1:b]) == before]
    return fits[-1] if fits else None
