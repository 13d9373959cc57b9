"""Reference: compiles and runs a program op by op, checking every shape against the op's spec.

A fused op runs its body. Weights are decoded once to the precision of the values, but tables and large expert stacks
by row or expert; values die after their last use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.frame import Frame, check
from tensormill.backends.reference.kinds import KINDS
from tensormill.backends.reference.lazy import Lazy
from tensormill.backends.reference.stores import PagedStore, RingStore, StateStore
from tensormill.errors import BackendError, ProgramError
from tensormill.program.backend import Limits, Progress
from tensormill.program.cost import stored_bytes
from tensormill.program.ir import Cache, Op, Program, Value
from tensormill.program.kv import put_page
from tensormill.program.specs import SPECS
from tensormill.program.step import Step
from tensormill.program.weights import WeightSource

Array = npt.NDArray[Any]
Store = PagedStore | RingStore | StateStore
LARGE = 1 << 28  # elements: an expert stack above this is decoded an expert at a time, at each use


def flatten(ops: Iterable[Op]) -> list[Op]:
    """The unfused ops, in order."""
    return [inner for op in ops for inner in (flatten(op.body) if op.body else [op])]


def compile(
    program: Program,
    weights: WeightSource,
    limits: Limits,
    *,
    threads: int = 0,
    progress: Progress | None = None,
    precision: npt.DTypeLike = np.float32,
) -> Reference:
    """A program ready to run; `threads` is not used (BLAS has its own), `precision` float64 is for tests.

    BackendError names an op that has no reference, or a cache for which the limits have no pages.
    """
    return Reference(program, weights, limits, np.dtype(precision), progress)


class Reference:
    """The executable of `tensormill.program.backend`, by definition right and by no means fast."""

    def __init__(
        self, program: Program, weights: WeightSource, limits: Limits, real: np.dtype[Any], progress: Progress | None
    ) -> None:
        self.program = program
        self.limits = limits
        self._real = real
        self._ops = flatten(program.ops)
        for op in self._ops:
            if op.kind not in KINDS:
                raise BackendError(f"the reference has no op {op.kind!r}, which makes {op}")
        self.stores = {c: self._store(c) for c in dict.fromkeys(c for op in self._ops for c in op.caches)}
        self._weights = self._load(weights, progress)
        self._last = self._last_uses()

    def run(self, step: Step) -> dict[str, Array]:
        """One step; the named outputs."""
        env = self._replay(step, keep=False)
        return {name: env[value] for name, value in self.program.outputs.items()}

    def values(self, step: Step) -> dict[str, Array]:
        """One step; every value that it made, by name (and the outputs under their own names)."""
        env = self._replay(step, keep=True)
        made = {v.name: env[v] for op in self._ops for v in op.outputs}
        return made | {name: env[value] for name, value in self.program.outputs.items()}

    def copy_page(self, lifetime: int, source: int, target: int) -> None:
        """Copy a page of every cache of that lifetime."""
        for cache, store in self.stores.items():
            if isinstance(store, PagedStore) and cache.window == lifetime:
                store.copy(source, target)

    def read_page(self, lifetime: int, page: int) -> bytes:
        """The bytes of a page of every cache of that lifetime, rounded numbers as they are held."""
        return b"".join(part.tobytes() for part in self._page(lifetime, page))

    def write_page(self, lifetime: int, page: int, data: bytes) -> None:
        """Put the bytes of a page back; ValueError if they are not as many as a page has."""
        put_page(self._page(lifetime, page), data)

    def _page(self, lifetime: int, page: int) -> list[Array]:
        stores = [s for c, s in self.stores.items() if isinstance(s, PagedStore) and c.window == lifetime]
        return [part[page] for s in stores for part in (s.k, s.v) if part is not None]

    def snapshot(self, slot: int) -> dict[str, Array]:
        """Rings whole and states at their base, by cache name."""
        return {name: rows[slot].copy() for name, rows in self._slots()}

    def restore(self, slot: int, snapshot: Mapping[str, Array]) -> None:
        """Put a snapshot into a slot."""
        for name, rows in self._slots():
            rows[slot] = snapshot[name]

    @property
    def bytes(self) -> dict[str, int]:
        """Memory by use: weights as they were decoded, caches, arena (none: values come and go)."""
        weights = sum(w.nbytes for w in self._weights.values() if not isinstance(w, Lazy))
        return {"weights": weights, "caches": sum(s.nbytes for s in self.stores.values()), "arena": 0}

    def _slots(self) -> list[tuple[str, Array]]:
        kept = [(c.name, s.rows) for c, s in self.stores.items() if isinstance(s, RingStore)]
        return kept + [(c.name, s.states) for c, s in self.stores.items() if isinstance(s, StateStore)]

    def _store(self, cache: Cache) -> Store:
        if cache.kind == "paged":
            return PagedStore(cache, self.limits, self._real)
        if cache.kind == "ring":
            return RingStore(self.limits, cache.width, cache.back, self._real)
        (op,) = (op for op in self._ops if cache in op.caches)  # a state belongs to one recurrence
        width = sum(prod(int(n) for n in v.shape[1:]) for v in op.values if v.role != "weight")
        return StateStore(cache, self.limits, width, self._real)

    def _load(self, source: WeightSource, progress: Progress | None) -> dict[Value, Array | Lazy]:
        uses: dict[Value, set[str]] = {}
        for op in self._ops:
            for i, v in enumerate(op.inputs):
                if isinstance(v, Value) and v.role == "weight":
                    uses.setdefault(v, set()).add(op.kind if i == 1 else "other")
        sizes = {v: stored_bytes(v.recipe) for v in uses if v.recipe}
        loaded: dict[Value, Array | Lazy] = {}
        for v, kinds in uses.items():
            loaded[v] = self._weight(source, v, kinds)
            if progress:
                progress(sum(sizes[w] for w in loaded), sum(sizes.values()))
        return loaded

    def _weight(self, source: WeightSource, value: Value, kinds: set[str]) -> Array | Lazy:
        recipe = value.recipe
        assert recipe is not None, f"{value} has no recipe"
        if kinds == {"embed"} and not recipe.transposed:
            return Lazy(source, recipe, self._real)
        if kinds == {"expert_linear"} and prod(recipe.shape) > LARGE:
            return Lazy(source, recipe, self._real)
        if recipe.cuts[0].type.name == "I32":
            return source.int32(recipe)
        return source.float32(recipe).astype(self._real)

    def _last_uses(self) -> dict[int, list[Value]]:
        kept = set(self.program.outputs.values())
        last = {v: i for i, op in enumerate(self._ops) for v in (*op.values, *op.outputs) if v not in kept}
        dying: dict[int, list[Value]] = {}
        for value, i in last.items():
            dying.setdefault(i, []).append(value)
        return dying

    def _replay(self, step: Step, *, keep: bool) -> dict[Value, Array]:
        check(step, self.limits, recurrent=any(not isinstance(s, PagedStore) for s in self.stores.values()))
        frame = Frame(step)
        env: dict[Value, Array] = {}
        for i, op in enumerate(self._ops):
            operands = [self._operand(v, step, env) for v in op.inputs]
            first = (frame,) if SPECS[op.kind].step else ()
            made = KINDS[op.kind](*first, *operands, **op.attrs)
            made = made if isinstance(made, tuple) else (made,) if op.outputs else ()
            for value, array in zip(op.outputs, made, strict=True):
                env[value] = self._checked(op, value, array, step)
            for value in self._last.get(i, ()) if not keep else ():
                env.pop(value, None)
        return env

    def _operand(self, operand: Value | Cache | None, step: Step, env: dict[Value, Array]) -> Any:
        if operand is None:
            return None
        if isinstance(operand, Cache):
            return self.stores[operand]
        if operand in env:
            return env[operand]
        if operand.role == "weight":
            return self._weights[operand]
        return operand.data if operand.role == "const" else getattr(step, operand.name)

    def _checked(self, op: Op, value: Value, array: Array, step: Step) -> Array:
        expected = tuple(step.size(n) if isinstance(n, str) else n for n in value.shape)
        if array.shape != expected:
            raise ProgramError(f"{op} made {list(array.shape)} where its spec says {list(expected)}")
        return array.astype(np.int32 if value.dtype == "i32" else self._real, copy=False)
