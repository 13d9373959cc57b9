"""Runs a program on several ranks by the sharding rules, each rank with the reference's ops on its strips.

Where a rule says that a state does not fit, sums and owned rows are reduced and, if that is not enough, strips gathered: the
simplest pass. What counts is that the outputs are those of one rank.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.kinds import KINDS
from tensormill.backends.reference.stores import PagedStore, RingStore, StateStore
from tensormill.program import Cache, Limits, Op, Program, Step, Value
from tensormill.program.sharding import FULL, State, alone, inner, own, rule, split
from tensormill.program.specs import SPECS

Pieces = list[np.ndarray]
Held = tuple[State, Pieces]


class Ranks:
    """`bounds`: where each rank's share of a split axis ends, as fractions."""

    def __init__(self, bounds: tuple[float, ...], limits: Limits) -> None:
        self.bounds = (0.0, *bounds)
        self.limits = limits
        self.caches: dict[Cache, tuple[State, list[Any]]] = {}
        self.reduced: list[str] = []  # values that had to be made full
        self.draw = np.random.default_rng(0)

    def shares(self, size: int, every: int = 0) -> list[np.ndarray]:
        """Indices of an axis that each rank has."""
        n = every or size
        ends = [round(b * n) for b in self.bounds]
        run = [np.arange(a, b) for a, b in pairwise(ends)]
        return [(np.arange(0, size, n)[:, None] + one).reshape(-1) for one in run]

    def deal(self, array: np.ndarray, state: State, owners: dict[str, np.ndarray] | None = None) -> Pieces:
        """A whole value → what each rank has of it."""
        n = len(self.bounds) - 1
        if state.kind == "split":
            return [np.take(array, share, state.axis) for share in self.shares(array.shape[state.axis], state.every)]
        if state.kind == "part":
            parts = [self.draw.standard_normal(array.shape).astype(array.dtype) for _ in range(n - 1)]
            return [*parts, array - sum(parts, np.zeros_like(array))]
        if state.kind == "own":
            owners = {} if owners is None else owners
            owner = owners.setdefault(state.place, self.draw.integers(0, n, array.shape[:-1]))
            owner = owner.reshape(owner.shape + (1,) * (array.ndim - owner.ndim))
            return [np.where(owner == r, array, 0) for r in range(n)]
        return [array] * n

    def whole(self, state: State, pieces: Pieces) -> np.ndarray:
        """What the ranks have → the value; checks that full is alike everywhere and that a row has one owner."""
        if state.kind == "split":
            size = sum(p.shape[state.axis] for p in pieces)
            order = np.concatenate(self.shares(size, state.every))
            return np.take(np.concatenate(pieces, state.axis), np.argsort(order), state.axis)
        if state.kind == "full":
            for p in pieces:
                np.testing.assert_array_equal(p, pieces[0])
            return pieces[0]
        if state.kind == "own":
            holders = sum((p != 0).any(-1).astype(int) for p in pieces)
            assert np.max(holders) <= 1, "a row is on two ranks"
        return np.sum(pieces, axis=0)

    def run(self, program: Program, step: Step, env: dict[Value, Held]) -> dict[str, Held]:
        """Every op on every rank; `env` holds the inputs and weights, and gets the values."""
        frame = Frame(step)
        for op in program.ops:
            held = [None if v is None else self.caches.get(v) if isinstance(v, Cache) else env[v] for v in op.inputs]
            held = self.place(op, held)
            states, made = self.fit(op, held)
            for value, state, pieces in zip(op.outputs, *self.execute(op, states, made, frame), strict=True):
                env[value] = state, pieces
        return {name: env[v] for name, v in program.outputs.items()}

    def place(self, op: Op, held: list[Any]) -> list[Any]:
        """Ids of a table or stack that is split by rows or experts become local ids, −1 where the row is elsewhere."""
        at, ids = {"embed": (1, 0), "expert_linear": (1, 2)}.get(op.kind, (None, 0))
        if at is None or held[at][0] != split(0) or held[ids][0] != FULL:
            return held
        size = sum(len(p) for p in held[at][1])
        local = []
        for share in self.shares(size):
            table = np.full(size + 1, -1, np.int32)
            table[share] = np.arange(len(share))
            local.append(table[held[ids][1][0]])
        return [(own(str(op.inputs[ids])), local) if i == ids else h for i, h in enumerate(held)]

    def fit(self, op: Op, held: list[Any]) -> tuple[list[Any], list[Any]]:
        """Inputs in states that the rule takes; caches get theirs at first use."""
        for changed in ((), ("part", "own"), ("part", "own", "split")):
            for i, h in enumerate(held):
                if isinstance(op.inputs[i], Value) and h[0].kind in changed:
                    self.reduced.append(op.inputs[i].name)
                    held[i] = FULL, [self.whole(*h)] * (len(self.bounds) - 1)
            states = [self.state(op, i, held) for i in range(len(held))]
            if rule(op, states) is not None:
                return states, held
        raise AssertionError(f"{op} does not even take full values")

    def state(self, op: Op, i: int, held: list[Any]) -> State | None:
        operand = op.inputs[i]
        if isinstance(operand, Cache):
            return self.cache_state(op, operand, held)
        return None if operand is None else held[i][0]

    def cache_state(self, op: Op, cache: Cache, held: list[Any]) -> State:
        if cache in self.caches:
            return self.caches[cache][0]
        by = {"kv_write": 1, "tail": 0, "ssm_scan": 0, "delta_rule": 2}[op.kind]
        state, shape = held[by][0], op.inputs[by].shape
        if state.kind != "split":
            return FULL
        return split(0, state.every * (prod(shape[2:]) if op.kind == "tail" else 1))

    def store(self, op: Op, cache: Cache, state: State, r: int, pieces: list[Any]) -> Any:
        if cache not in self.caches:
            self.caches[cache] = state, [None] * (len(self.bounds) - 1)
        stores = self.caches[cache][1]
        if stores[r] is None:
            part = (lambda n: len(self.shares(n, state.every)[r])) if state.kind == "split" else (lambda n: n)
            if cache.kind == "paged":
                v = None if cache.v is None else (part(cache.v[0]), cache.v[1])
                stores[r] = PagedStore(replace(cache, k=(part(cache.k[0]), cache.k[1]), v=v), self.limits, np.float64)
            elif cache.kind == "ring":
                stores[r] = RingStore(self.limits, part(cache.width), cache.back, np.float64)
            else:
                pairs = zip(op.inputs, pieces, strict=True)
                rows = [h[1][r] for v, h in pairs if isinstance(v, Value) and v.shape[0] == "T"]
                local = replace(cache, shape=(part(cache.shape[0]), *cache.shape[1:]))
                stores[r] = StateStore(local, self.limits, sum(prod(p.shape[1:]) for p in rows), np.float64)
        return stores[r]

    def execute(self, op: Op, states: list[Any], held: list[Any], frame: Frame) -> tuple[tuple[State, ...], list[Pieces]]:
        out = rule(op, states)
        assert out is not None
        once, n = alone(op, states), len(self.bounds) - 1
        results = []
        for r in range(n):
            operands = []
            for i, v in enumerate(op.inputs):
                if isinstance(v, Cache):
                    operands.append(self.store(op, v, states[i], r, held))
                else:
                    piece = None if v is None else held[i][1][r]
                    operands.append(np.zeros_like(piece) if i in once and r else piece)
            first = (frame,) if SPECS[op.kind].step else ()
            if inner(op, states):
                results.append((self.norm(op, held, operands),))
                continue
            made = KINDS[op.kind](*first, *operands, **self.local(op, out, r, frame.step))
            results.append(made if isinstance(made, tuple) else (made,) if op.outputs else ())
        return out, [list(pieces) for pieces in zip(*results, strict=True)]

    def norm(self, op: Op, held: list[Any], operands: list[Any]) -> np.ndarray:
        """A norm across ranks: each adds one number a row (layer_norm two)."""
        size = sum(p.shape[-1] for p in held[0][1])
        x, w = operands[0], 1 if operands[1] is None else operands[1]
        if op.kind == "layer_norm":
            mean = sum(p.sum(-1, keepdims=True) for p in held[0][1]) / size
            var = sum((p**2).sum(-1, keepdims=True) for p in held[0][1]) / size - mean**2
            return (x - mean) / np.sqrt(var + op.attrs["eps"]) * w + (0 if operands[2] is None else operands[2])
        squares = sum((p**2).sum(-1, keepdims=True) for p in held[0][1])
        return x / np.sqrt(squares / (size if op.attrs["over"] == "mean" else 1) + op.attrs["eps"]) * w

    def local(self, op: Op, out: tuple[State, ...], r: int, step: Step) -> dict[str, Any]:
        """Attributes that speak of a rank's own strip."""
        if not out or out[0].kind != "split":
            return dict(op.attrs)
        shape, axis = list(op.outputs[0].shape), out[0].axis
        share = len(self.shares(int(shape[axis]), out[0].every)[r])
        if op.kind == "reshape":
            return {"shape": (*shape[:axis], share, *shape[axis + 1 :])}
        if op.kind == "linear" and op.attrs["groups"] > 1:
            return {"groups": share}
        return dict(op.attrs)
