"""Reference: products. Sums run in BLAS order in the precision of the values (float32, or float64 for tests)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.lazy import Lazy

Array = npt.NDArray[Any]


def linear(x: Array, w: Array, b: Array | None, scale: Array | None, *, groups: int) -> Array:
    """x[…,I]·Wᵀ·scale + b → […,O]; with groups, x[…,g,I] and block-diagonal W[g·O,I] → […,g,O]."""
    if groups == 1:
        out: Array = x @ w.reshape(-1, w.shape[-1]).T
    else:
        blocks = w.reshape(groups, -1, w.shape[-1])
        out = (blocks @ x[..., None])[..., 0]  # [g,O,I] · […,g,I,1]
    if scale is not None:
        out = out * scale.reshape(())
    return out if b is None else out + b.reshape(out.shape[-1] if groups == 1 else (groups, -1))


def expert_linear(x: Array, w: Array | Lazy, ids: Array, b: Array | None, scale: Array | None) -> Array:
    """x[T,I] or [T,k,I] by W[E,O,I] of ids[T,k] → [T,k,O], times scale[E or 1], plus b[E,O]; zeros where the id is −1."""
    out = np.zeros((*ids.shape, w.shape[1]), x.dtype)
    scales = None if scale is None else np.broadcast_to(scale.reshape(-1), w.shape[0])
    for e in np.unique(ids[ids >= 0]):
        token, place = np.nonzero(ids == e)
        matrix = w.expert(int(e)) if isinstance(w, Lazy) else w[e]
        y = (x[token] if x.ndim == 2 else x[token, place]) @ matrix.T
        y = y if scales is None else y * scales[e]
        out[token, place] = y if b is None else y + b[e]
    return out


def hadamard(x: Array, *, n: int) -> Array:
    """Blocks of n of the last axis times the Walsh–Hadamard matrix over √n (Sylvester's order)."""
    matrix = np.ones((1, 1), x.dtype)
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(x.reshape(*x.shape[:-1], -1, n) @ (matrix / np.sqrt(n).astype(x.dtype))).reshape(x.shape)


def mix(w: Array, x: Array) -> Array:
    """w[T,m] or [T,m,j], x[T,m,D] → Σ_m w·x: [T,D] or [T,j,D]; m ascending."""
    columns = w[:, :, None] if w.ndim == 2 else w
    out = np.zeros((len(x), columns.shape[2], x.shape[2]), x.dtype)
    for m in range(x.shape[1]):
        out = out + columns[:, m, :, None] * x[:, m, None, :]
    return out[:, 0] if w.ndim == 2 else out
