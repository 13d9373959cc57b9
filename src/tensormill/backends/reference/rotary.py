"""Reference: rotary positions. All scaling is resolved into `freq` and `mag` while a model is traced (OPS.md §4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.frame import Frame

Array = npt.NDArray[Any]


def angles(frame: Frame, positions: Array, *, freq: Array, comp: Array, mag: float, rows: str) -> Array:
    """mag·(cos, sin) of float32(position·freq), [rows, n/2, 2]; a compressed entry takes its first token's position."""
    wanted, ratio = frame.rows(rows)
    places = positions[comp][:, wanted] - (ratio - 1)
    theta = (places.T.astype(np.float32) * freq).astype(np.float64)
    return np.stack([np.cos(theta), np.sin(theta)], axis=-1) * mag


def rope(x: Array, cs: Array, *, pair: str, at: str, inverse: bool) -> Array:
    """Rotates n of the K dims of x[T,H,K], adjacent pairs (2i, 2i+1) or halves (i, i + n/2), at the start or the end."""
    half = cs.shape[1]
    first = 0 if at == "start" else x.shape[2] - 2 * half
    i = np.arange(half)
    one, two = (first + 2 * i, first + 2 * i + 1) if pair == "adjacent" else (first + i, first + half + i)
    cos, sin = cs[:, None, :, 0], cs[:, None, :, 1] * (-1 if inverse else 1)
    out = x.copy()
    out[..., one] = x[..., one] * cos - x[..., two] * sin
    out[..., two] = x[..., one] * sin + x[..., two] * cos
    return out
