"""Strided views of storage: what an operand of a native record is before the memory plan.

A reshape or a slice of a view is another view of the same storage wherever strides allow; no bytes move.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from tensormill.program.ir import Dim, Shape, Value

ITEM = 4  # bytes of float32 and int32


@dataclass(frozen=True, eq=False, slots=True)
class Storage:
    """Bytes somewhere: a planned temporary (`value`), a step input (by number) or a constant array."""

    value: Value | None = None
    bytes: int = 0
    input: int = -1
    array: npt.NDArray[np.generic] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Elements of a storage; strides count elements, `offset` counts bytes. Only the first axis may be a symbol.

    `times` multiplies the first axis: rows of [T, H, K] flattened to [T·H, K] are T times H.
    """

    storage: Storage
    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0
    times: int = 1

    def reshape(self, shape: Shape) -> View | None:
        """The same elements as `shape` (first axis unchanged), or None if strides do not allow it."""
        strides = _split(self.shape[1:], self.strides[1:], shape[1:])
        if strides is None:
            return None
        return View(self.storage, shape, (self.strides[0], *strides), self.offset, self.times)

    def slice(self, axis: int, start: int, stop: int) -> View:
        """Elements start…stop of an axis after the first."""
        shape = (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])
        return View(self.storage, shape, self.strides, self.offset + start * self.strides[axis] * ITEM, self.times)

    def insert(self, axis: int) -> View:
        """A new axis of size 1."""
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        return View(self.storage, shape, (*self.strides[:axis], 0, *self.strides[axis:]), self.offset, self.times)

    def rows(self) -> View | None:
        """All leading axes as one: [rows, last], or None if rows do not lie evenly."""
        if len(self.shape) == 1:
            return View(self.storage, (1, *self.shape), (0, *self.strides), self.offset) if self.fixed else None
        for k in range(len(self.shape) - 2):
            if self.strides[k] != self.strides[k + 1] * int(self.shape[k + 1]):
                return None
        times = self.times * prod(int(d) for d in self.shape[1:-1])
        return View(self.storage, (self.shape[0], self.shape[-1]), (self.strides[-2], self.strides[-1]), self.offset, times)

    def wide(self) -> View | None:
        """All trailing axes as one: [first, rest], or None if they are not contiguous."""
        if _split(self.shape[1:], self.strides[1:], (prod(int(d) for d in self.shape[1:]),)) is None:
            return None
        return View(self.storage, (self.shape[0], prod(int(d) for d in self.shape[1:])), (self.strides[0], 1), self.offset)

    @property
    def fixed(self) -> bool:
        """Whether no axis is a symbol."""
        return not isinstance(self.shape[0], str)

    @property
    def dense(self) -> bool:
        """Whether elements of the last axis are neighbours."""
        return self.strides[-1] == 1 or self.shape[-1] == 1


def contiguous(shape: Shape) -> tuple[int, ...]:
    """Row-major strides; those beyond a symbol (positions [c, T]) are 0 here and known to the replay."""
    strides = [1]
    for dim in reversed(shape[1:]):
        strides.append(0 if isinstance(dim, str) else strides[-1] * dim)
    return tuple(reversed(strides)) if shape else ()


def _split(old: tuple[Dim, ...], strides: tuple[int, ...], new: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """Strides of `new` over the elements of `old`, or None."""
    axes = [(int(d), s) for d, s in zip(old, strides, strict=True) if d != 1]
    runs: list[tuple[int, int]] = []  # (size, stride) of maximal contiguous runs
    for size, stride in axes:
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    out: list[int] = []
    left = 1
    for dim in reversed(new):
        d = int(dim)
        if d == 1:
            out.append(0)
            continue
        if left == 1:
            if not runs:
                return None
            left, step = runs.pop()
        if left % d:
            return None
        out.append(step)
        left //= d
        step *= d
    return tuple(reversed(out)) if left == 1 and not runs else None
