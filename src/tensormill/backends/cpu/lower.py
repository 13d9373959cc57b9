"""Lowering: the ops of a program become native records over views of storage.

One rule an op kind (`lower_rows.py`, `lower_products.py`, `lower_cached.py`); views cost nothing, activations are quantised
once for all products that read them, and a fused op without a rule of its own is lowered through its body. Addresses come
later, from the memory plan (`executable.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.cpu.caches import Pages, Slots, make_pages, make_slots
from tensormill.backends.cpu.view import ITEM, Storage, View, contiguous
from tensormill.backends.cpu.weights import Member, Packed, Weights
from tensormill.errors import BackendError
from tensormill.program.backend import Limits
from tensormill.program.ir import Cache, Op, Operand, Program, Shape, Value

WORD_INPUTS = 64  # inputs that share a scale of 16-bit codes (csrc/linear/linear.h)
Object = Packed | Member | Pages | Slots


@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One call of a kernel; what its operands and attributes are stands above the kernel in `csrc/ops`."""

    kernel: str
    inputs: tuple[View | None, ...]
    outputs: tuple[View | None, ...]
    objects: tuple[Object | None, ...] = ()
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    op: Op | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Codes:
    """A quantised activation: int8 codes [rows, K], a scale for each 32, a sum for each 16; or int16 words, scales for 64."""

    codes: View
    scales: View
    sums: View | None

    @property
    def views(self) -> tuple[View, View, View | None]:
        """In the order that kernels take them."""
        return self.codes, self.scales, self.sums


Rule = Callable[["Lowering", Op], None]
RULES: dict[str, Rule] = {}


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register how a kind is lowered."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


@dataclass(eq=False, slots=True)
class Lowering:
    """Records made so far, and the views that stand for the program's values."""

    limits: Limits
    weights: Weights
    records: list[Record] = field(default_factory=list)
    views: dict[Value, View] = field(default_factory=dict)
    inputs: dict[str, Storage] = field(default_factory=dict)
    caches: dict[Cache, Pages | Slots] = field(default_factory=dict)
    tables: list[int] = field(default_factory=list)
    scratch: int = 0  # bytes a thread
    _codes: dict[tuple[int, bool], tuple[View, Codes]] = field(default_factory=dict)
    _groups: dict[Value, tuple[View, ...]] = field(default_factory=dict)
    _op: Op | None = None

    def program(self, program: Program) -> None:
        """Lower every op."""
        for op in program.ops:
            self.op(op)

    def op(self, op: Op) -> None:
        """Lower one op; BackendError if there is no rule for its kind."""
        if op.kind in RULES:
            self._op = op
            RULES[op.kind](self, op)
        elif op.body:
            for part in op.body:
                self.op(part)
        else:
            raise BackendError(f"the CPU backend has no kernel for the op {op.kind!r}: {op}")

    # ---- operands ----

    def view(self, operand: Operand) -> View:
        """The view of a value: of its storage, its constant, or the step's array."""
        assert isinstance(operand, Value), "a cache is not a value"
        if operand not in self.views:
            self.views[operand] = self._outer(operand)
        return self.views[operand]

    def maybe(self, operand: Operand) -> View | None:
        """The view of an optional value."""
        return None if operand is None else self.view(operand)

    def constant(self, array: npt.NDArray[Any]) -> View:
        """A view of an array that the executable keeps alive."""
        array = np.ascontiguousarray(array)
        return View(Storage(array=array), array.shape, contiguous(array.shape))

    def step_input(self, name: str, shape: Shape) -> View:
        """A step array by name."""
        storage = self.inputs.setdefault(name, Storage(input=len(self.inputs)))
        return View(storage, shape, contiguous(shape))

    def _outer(self, value: Value) -> View:
        if value.role == "input":
            return self.step_input(value.name, value.shape)
        if value.role == "const" and value.data is not None:
            return self.constant(value.data)
        if value.recipe is not None:
            return self.constant(self.weights.array(value.recipe))
        raise BackendError(f"the value {value} is read before it is made")

    def rows(self, operand: Operand | View) -> View:
        """An operand as [rows, last], copied if its rows do not lie evenly."""
        view = operand if isinstance(operand, View) else self.view(operand)
        flat = view.rows() if view.dense else None
        return flat if flat is not None else _some(self.copy(view).rows())

    def dense(self, operand: Operand) -> View:
        """An operand whose last axis is contiguous."""
        view = self.view(operand)
        return view if view.dense else self.copy(view)

    def wide(self, operand: Operand) -> View:
        """An operand as [first, rest], copied if the rest does not lie together."""
        view = self.view(operand)
        flat = view.wide()
        return flat if flat is not None else _some(self.copy(view).wide())

    def copy(self, view: View) -> View:
        """A contiguous copy."""
        made = self.temp(view.shape, "copy", view.times)
        self.emit("copy", (view,), (made,))
        return made

    # ---- results ----

    def temp(self, shape: Shape, name: str = "temp", times: int = 1) -> View:
        """New storage for `shape`, sized for the largest step."""
        size = prod(self.limits.size(d) if isinstance(d, str) else d for d in shape) * times
        storage = Storage(Value(name, shape), max(size, 1) * ITEM)
        return View(storage, shape, contiguous(shape), times=times)

    def make(self, value: Value) -> View:
        """New storage for an op's output."""
        self.views[value] = self.temp(value.shape, value.name)
        return self.views[value]

    def cache(self, operand: Operand) -> Pages | Slots:
        """The memory of a cache, allocated at its first use."""
        assert isinstance(operand, Cache)
        if operand not in self.caches:
            if operand.kind == "paged":
                if operand.window not in self.tables:
                    self.tables.append(operand.window)
                self.caches[operand] = make_pages(operand, self.limits, self.tables.index(operand.window))
            else:
                self.caches[operand] = make_slots(operand, self.limits, 0)
        return self.caches[operand]

    def state(self, operand: Operand, inputs: int) -> Slots:
        """The memory of a recurrent state whose op takes `inputs` numbers a token."""
        assert isinstance(operand, Cache)
        if operand not in self.caches:
            self.caches[operand] = make_slots(operand, self.limits, inputs)
        slots = self.caches[operand]
        assert isinstance(slots, Slots)
        return slots

    def emit(
        self,
        kernel: str,
        inputs: Sequence[View | None],
        outputs: Sequence[View | None],
        objects: Sequence[Object | None] = (),
        ints: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> None:
        """Append a record."""
        self.records.append(Record(kernel, tuple(inputs), tuple(outputs), tuple(objects), tuple(ints), tuple(floats), self._op))

    # ---- made once, read by several ----

    def codes(self, rows: View) -> Codes:
        """Quantised rows; once for all products that read the same rows."""
        key = _key(rows), False
        if key not in self._codes:
            first, width = rows.shape[0], int(rows.shape[-1])
            if width % 32:
                raise BackendError(f"quantised weights need an input width that is a multiple of 32, not {width}")
            n = self._count(rows)
            offsets = np.cumsum([0, n * width, n * width // 8])
            storage = Storage(Value("codes", rows.shape), n * width + n * width // 8 + n * width // 8 + 64)
            codes, scales, sums = (
                View(storage, (first, w), (w, 1), int(o), rows.times)
                for w, o in zip((width, width // 32, width // 16), offsets, strict=True)
            )
            self._codes[key] = rows, Codes(codes, scales, sums)
            self.emit("quantise", (rows,), (codes, scales, sums))
        return self._codes[key][1]

    def words(self, rows: View) -> Codes:
        """Rows as 16-bit codes, likewise. Rows are an odd number of blocks apart: powers of two share few lines of a cache."""
        key = _key(rows), True
        if key not in self._codes:
            first, n, blocks = rows.shape[0], self._count(rows), -(-int(rows.shape[-1]) // WORD_INPUTS)
            stride = WORD_INPUTS * (blocks | 1)
            scales_at = n * stride * 2
            storage = Storage(Value("words", rows.shape), scales_at + n * (blocks | 1) * ITEM + 64)
            words = View(storage, (first, WORD_INPUTS * blocks), (stride, 1), 0, rows.times)
            scales = View(storage, (first, blocks), (blocks | 1, 1), scales_at, rows.times)
            self._codes[key] = rows, Codes(words, scales, None)
            self.emit("quantise", (rows,), (words, scales, None))
        return self._codes[key][1]

    def _count(self, rows: View) -> int:
        first = rows.shape[0]
        return (self.limits.size(first) if isinstance(first, str) else first) * rows.times

    def groups(self, ids: Value, experts: int) -> tuple[View, ...]:
        """Pairs of (token, place) sorted by expert; once a route."""
        if ids not in self._groups:
            view = self.rows(ids)
            k = int(ids.shape[-1])
            pairs = (ids.shape[0], k)
            made = (self.temp((experts + 1,), "offsets"), self.temp(pairs, "pairs"), self.temp(pairs, "tokens"))
            active = self.temp((experts + 1,), "active")
            flat = tuple(View(v.storage, (v.shape[0],), (1,), times=k) for v in made[1:])
            self.emit("group", (view,), (made[0], *flat, active), ints=(experts, k))
            self._groups[ids] = (made[0], *flat, active)
        return self._groups[ids]


def _key(rows: View) -> int:
    return hash((id(rows.storage), rows.offset, rows.strides, rows.shape, rows.times))


def _some(view: View | None) -> View:
    assert view is not None, "a contiguous copy can be viewed as rows"
    return view
