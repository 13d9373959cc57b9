"""A compiled program: lowering, memory plan and weights put together, and the steps run on it.

A step is one native call that replays every record with the interpreter lock released. Values live in one arena planned for the
largest step; outputs are views of it, valid until the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.cpu import lower_cached, lower_products, lower_rows  # noqa: F401 - they register rules
from tensormill.backends.cpu.caches import Pages, Slots, objects_of
from tensormill.backends.cpu.cores import default_threads
from tensormill.backends.cpu.fuse_records import fuse_records
from tensormill.backends.cpu.lower import Lowering
from tensormill.backends.cpu.memory import check_room, region
from tensormill.backends.cpu.native import native, pool
from tensormill.backends.cpu.view import View
from tensormill.backends.cpu.weights import Member, Packed, Weights
from tensormill.backends.cpu.work import Work, works
from tensormill.errors import BackendError, ProgramError
from tensormill.program.backend import Limits, Progress
from tensormill.program.cost import Sizes
from tensormill.program.ir import Op, Program, Value
from tensormill.program.kv import put_page
from tensormill.program.passes import plan_memory, prepare
from tensormill.program.step import Step
from tensormill.program.weights import WeightSource

OFFERS = frozenset({"linears", "expert_linears", "unary+mul"})
FIXED = ("index", "until", "seq_start", "past", "sure", "slot", "base")
Plan = tuple[dict[Value, int], int]  # where each value lies in the arena; bytes of all of it


def compile(
    program: Program,
    weights: WeightSource,
    limits: Limits,
    *,
    threads: int = 0,
    progress: Progress | None = None,
    fused: bool = True,
) -> CPUExecutable:
    """Lower, pack and plan; `fused=False` keeps every value of the program as it is written."""
    threads = threads or default_threads()
    g = Lowering(limits, Weights(weights))
    g.program(prepare(program, OFFERS if fused else frozenset()))
    if fused:
        g.records = fuse_records(g.records, [g.view(v) for v in program.outputs.values()])
    plan = _plan(g, [g.view(v) for v in program.outputs.values()])
    caches = sum(c.memory.nbytes for c in g.caches.values())
    check_room(g.weights.bytes, caches, plan[1] + threads * g.scratch, limits.memory)
    g.weights.pack(progress, threads)
    return CPUExecutable(program, g, limits, threads, plan)


class CPUExecutable:
    """See `tensormill.program.backend.Executable`."""

    def __init__(self, program: Program, g: Lowering, limits: Limits, threads: int, plan: Plan) -> None:
        self._limits = limits
        self._lowering = g
        self._outputs = {name: g.view(v) for name, v in program.outputs.items()}
        self._dtypes = {name: np.int32 if v.dtype == "i32" else np.float32 for name, v in program.outputs.items()}
        self._symbols = _symbols(g)
        self._tables = g.tables
        self._offsets, size = plan
        most = [1, *(limits.size(s) for s in self._symbols[1:])]
        self._arena = region(size)  # outputs are views of it and keep it alive
        self._native = native().Executable(pool(threads), self._arena.ctypes.data, most, limits.page)
        self._native.reserve_scratch(g.scratch)
        self._arrays: list[npt.NDArray[Any]] = []
        self._sizes: list[int] = []  # of the last step, and its outputs
        self._made: dict[str, npt.NDArray[Any]] = {}
        self._fill(g)

    def run(self, step: Step) -> dict[str, npt.NDArray[Any]]:
        """Replay the program; the named outputs are valid until the next run.

        ProgramError if the step does not fit the limits, BackendError if `cancel` stopped it.
        """
        sizes = [1, *(step.size(s) for s in self._symbols[1:])]
        try:
            finished = self._native.run(
                sizes,
                [getattr(step, name) for name in FIXED],
                [step.pages[w] for w in self._tables],
                [_input(step, name) for name in self._lowering.inputs],
            )
        except ValueError as why:
            raise ProgramError(str(why)) from why
        if not finished:
            raise BackendError("the step was cancelled")
        if sizes != self._sizes:
            self._made = {name: self._read(name, view, sizes) for name, view in self._outputs.items()}
            self._sizes = sizes
        return self._made

    def cancel(self) -> None:
        """Stop the step that runs, from another thread; its outputs and the pages it writes are worthless."""
        self._native.cancel()

    def copy_page(self, lifetime: int, source: int, target: int) -> None:
        """Copy a page of every cache of that lifetime."""
        for pages in self._caches(Pages):
            if pages.cache.window == lifetime:
                pages.memory[target] = pages.memory[source]

    def read_page(self, lifetime: int, page: int) -> bytes:
        """The bytes of a page of every cache of that lifetime."""
        return b"".join(p.memory[page].tobytes() for p in self._caches(Pages) if p.cache.window == lifetime)

    def write_page(self, lifetime: int, page: int, data: bytes) -> None:
        """Put the bytes of a page back; ValueError if they are not as many as a page has."""
        put_page([p.memory[page] for p in self._caches(Pages) if p.cache.window == lifetime], data)

    def snapshot(self, slot: int) -> dict[str, npt.NDArray[np.float32]]:
        """What a slot holds, by cache name."""
        return {s.cache.name: s.memory[slot].copy() for s in self._caches(Slots)}

    def restore(self, slot: int, snapshot: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Put a snapshot into a slot."""
        for s in self._caches(Slots):
            s.memory[slot] = snapshot[s.cache.name]

    def poison(self) -> None:
        """Fill all caches and the arena with NaN: for tests, which show with it that nobody reads what nobody wrote."""
        self._arena[:] = 0xFF
        for pages in self._caches(Pages):
            pages.memory[:] = 0xFF
        for slots in self._caches(Slots):
            slots.memory[:] = np.nan

    def profile(self, on: bool) -> None:
        """Take the time of each record from now on."""
        self._native.profile(on)

    def times(self) -> list[tuple[str, str, int]]:
        """(kernel, name of what it makes, nanoseconds since the last call) of each record."""
        labels = [r.op.outputs[0].name if r.op and r.op.outputs else "" for r in self._lowering.records]
        return [(r.kernel, n, t) for r, n, t in zip(self._lowering.records, labels, self._native.take_times(), strict=True)]

    def work(self, sizes: Sizes) -> list[Work]:
        """The work of each record in a step of these sizes."""
        return works(self._lowering.records, sizes, self._limits.kv_type)

    @property
    def bytes(self) -> dict[str, int]:
        """Memory by use: weights, caches, arena."""
        caches = sum(c.memory.nbytes for c in self._lowering.caches.values())
        return {"weights": self._lowering.weights.bytes, "caches": caches, "arena": self._arena.nbytes}

    def _caches(self, kind: type[Any]) -> list[Any]:
        return [c for c in self._lowering.caches.values() if isinstance(c, kind)]

    def _read(self, name: str, view: View, sizes: list[int]) -> npt.NDArray[Any]:
        shape = [sizes[self._symbols.index(d)] if isinstance(d, str) else d for d in view.shape]
        strides = [s * 4 for s in view.strides]
        return np.ndarray(shape, self._dtypes[name], self._arena, self._base(view), strides)

    def _base(self, view: View) -> int:
        assert view.storage.value is not None, "an output is a value that the program makes"
        return self._offsets[view.storage.value] + view.offset

    def _fill(self, g: Lowering) -> None:
        numbers: dict[int, int] = {}
        for record in g.records:
            objects = []
            for thing in record.objects:
                if id(thing) not in numbers:
                    numbers[id(thing)] = self._object(g, record.kernel, thing)
                objects.append(numbers[id(thing)])
            operands = [self._operand(v) for v in (*record.inputs, *record.outputs)]
            table = np.array(operands, np.int64).reshape(-1, 14)
            self._native.add_op(record.kernel, table, len(record.inputs), objects, list(record.ints), list(record.floats))

    def _object(self, g: Lowering, kernel: str, thing: Any) -> int:
        if thing is None:
            return -1
        if isinstance(thing, Pages | Slots):
            return objects_of(self._native, thing)
        assert isinstance(thing, Packed | Member)
        packed = thing.whole if isinstance(thing, Member) else thing
        address = g.weights.address(thing)
        if kernel == "expert_linears":
            p = packed
            return int(self._native.add_experts(int(p.type), p.count, p.rows, p.columns, p.stride, address))
        return int(self._native.add_matrix(int(packed.type), packed.rows, packed.columns, address))

    def _operand(self, view: View | None) -> list[int]:
        if view is None:
            return [0, 0] + [0, 1, 0] * 4
        storage = view.storage
        if storage.array is not None:
            self._arrays.append(storage.array)
            space, at = 3, storage.array.ctypes.data + view.offset
        elif storage.input >= 0:
            space, at = 2, storage.input
        else:
            space, at = 1, self._base(view)
        axes: list[int] = [0, 1, 0] * (4 - len(view.shape))
        for k, (dim, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
            symbol, times = (self._symbols.index(dim), 1) if isinstance(dim, str) else (0, dim)
            times *= view.times if k == 0 else 1
            axes += [symbol, times, 0 if (symbol, times) == (0, 1) else stride]
        return [space, at, *axes]


def _symbols(g: Lowering) -> list[str]:
    used = {d for r in g.records for v in (*r.inputs, *r.outputs) if v is not None for d in v.shape if isinstance(d, str)}
    return ["1", "T", "S", *sorted(used - {"T", "S"})]


def _plan(g: Lowering, outputs: list[View]) -> Plan:
    """Offsets of all storage: a value lives from the record that makes it to the last that reads it."""
    sizes: dict[Value, int] = {}

    def owners(views: tuple[View | None, ...]) -> tuple[Value, ...]:
        found = {v.storage.value: v.storage.bytes for v in views if v is not None and v.storage.value is not None}
        sizes.update(found)
        return tuple(found)

    ops = tuple(Op(r.kernel, owners(r.inputs), owners(r.outputs)) for r in g.records)
    kept = {str(i): v.storage.value for i, v in enumerate(outputs) if v.storage.value is not None}
    plan = plan_memory(Program("records", ops, kept), sizes.__getitem__)
    return plan.offsets, plan.size + 256  # kernels may load whole vectors at the end


def _input(step: Step, name: str) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = step.done[int(name[4:])] if name.startswith("done") else getattr(step, name)
    return array
