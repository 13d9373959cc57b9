"""Reference: ops with memory in a slot: rows behind a row, and recurrences token by token (OPS.md §2, rules 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.stores import RingStore, StateStore

Array = npt.NDArray[Any]


def tail(frame: Frame, x: Array, ring: RingStore, *, rows: str, pad: float) -> Array:
    """x[T,…] → [T or C_r, back+1, …]: each wanted row behind its predecessors; `pad` before the sequence begins."""
    wanted, _ratio = frame.rows(rows)
    flat = x.reshape(len(x), -1)
    out = np.zeros((len(wanted), ring.back + 1, flat.shape[1]), x.dtype)
    for s in frame.sequences:
        at, offsets = s.among(wanted)
        known = min(ring.back, s.past)
        before = np.full((ring.back - known, flat.shape[1]), pad, x.dtype)
        line = np.concatenate([before, ring.read(s.slot, s.past - known, s.past), flat[s.rows]])
        out[at] = line[offsets[:, None] + np.arange(ring.back + 1)]
        ring.write(s.slot, s.past, flat[s.rows])
    return out.reshape(len(wanted), ring.back + 1, *x.shape[1:])


def ssm_scan(frame: Frame, x: Array, dt: Array, a: Array, b: Array, c: Array, state: StateStore) -> Array:
    """x[T,H,Q], dt[T,H], A[H,1 or N], B,C[T,G,N] → [T,H,Q]: h ← e^(dt·A)·h + dt·x⊗B; y = h·C; head j of group j div (H/G).

    Mamba-1 is Q = 1 with A[H,N].
    """
    heads, repeat = x.shape[1], x.shape[1] // b.shape[1]

    def advance(h: Array, x: Array, dt: Array, b: Array, c: Array) -> tuple[Array, Array]:
        b, c = (np.repeat(m, repeat, axis=0)[:, None] for m in (b, c))  # [H,1,N]
        h = np.exp(dt[:, None] * a.reshape(heads, -1))[:, None] * h + (dt[:, None] * x)[..., None] * b
        return h, (h * c).sum(-1)

    return recur(frame, state, (x, dt, b, c), advance)


def delta_rule(frame: Frame, q: Array, k: Array, v: Array, beta: Array, g: Array, state: StateStore, *, map: str) -> Array:
    """q,k[T,G,K], v[T,H,Kv], β[T,H], g[T,H,1 or K] → [T,H,Kv]: S ← e^g·S; d = β(v − Sᵀk); S ← S + k dᵀ; o = Sᵀq.

    Value head j uses key head j mod G (map=tile) or j div (H/G) (map=repeat).
    """
    heads, groups = v.shape[1], q.shape[1]
    key = np.arange(heads) % groups if map == "tile" else np.arange(heads) // (heads // groups)

    def advance(s: Array, q: Array, k: Array, v: Array, beta: Array, g: Array) -> tuple[Array, Array]:
        s = np.exp(g)[..., None] * s  # [H,K,Kv]
        d = beta[:, None] * (v - (s * k[key][..., None]).sum(1))
        s = s + k[key][..., None] * d[:, None]
        return s, (s * q[key][..., None]).sum(1)

    return recur(frame, state, (q, k, v, beta, g), advance)


def recur(frame: Frame, store: StateStore, inputs: tuple[Array, ...], advance: Callable[..., tuple[Array, Array]]) -> Array:
    """Token by token from each sequence's base: base…past again without output, then its new tokens.

    Leaves the state behind the last sure token and the new inputs in the ring.
    """
    ends = np.cumsum([m[0].size for m in inputs])[:-1]
    packed = np.concatenate([m.reshape(len(m), -1) for m in inputs], axis=1)
    made: list[Array] = []
    for s in frame.sequences:
        state = store.load(s)
        line = np.concatenate([store.inputs.read(s.slot, s.base, s.past), packed[s.rows]])
        folded = state
        for i, row in enumerate(line, s.base):
            parts = (part.reshape(m.shape[1:]) for part, m in zip(np.split(row, ends), inputs, strict=True))
            state, y = advance(state, *parts)
            folded = state if i < s.past + s.sure else folded
            made += [y] if i >= s.past else []
        store.states[s.slot] = folded
        store.inputs.write(s.slot, s.past, packed[s.rows])
    return np.stack(made + [np.zeros_like(made[0])] * (len(packed) - len(made)))
