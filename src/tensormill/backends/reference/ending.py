"""Reference: how a program ends: pooled rows, candidates; and the round trip of quantised activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.routing import best

Array = npt.NDArray[Any]


def pool(frame: Frame, x: Array, *, kind: str) -> Array:
    """x[T,D] → [S,D]: the mean, first (cls) or last row of each sequence."""
    if kind == "mean":
        return np.stack([x[s.rows].mean(0) for s in frame.sequences])
    return np.stack([x[s.rows][{"cls": 0, "last": -1}[kind]] for s in frame.sequences])


def top_k(x: Array, *, k: int) -> tuple[Array, Array, Array]:
    """x[R,V] → the k largest, best first, equal ones lowest id first; their ids; log Σ exp over all V."""
    ids = best(x, k)
    top = x.max(1, keepdims=True)
    lse = np.log(np.exp(x - top).sum(1)) + top[:, 0]
    return np.take_along_axis(x, ids, axis=1), ids, lse


def codes(x: Array, block: int = 32) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """int8 codes in −127…127 of x[…,I], x·127/amax rounded half to even, and a float32 scale a block.

    The scale is that of the least squared error for these codes, Σ x·q / Σ q². A block of zeros has scale 0 and codes 0.
    """
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, block)
    largest = np.abs(blocks).max(-1, keepdims=True)
    q = np.rint(blocks * np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, 1), 0))
    square = (q * q).sum(-1)
    scale = np.where(square > 0, (blocks * q).sum(-1) / np.where(square > 0, square, 1), 0).astype(np.float32)
    return q.astype(np.int8).reshape(x.shape), scale


def quantise(x: Array, *, block: int = 32) -> Array:
    """The float32 numbers that the codes of x stand for: here a q8 value is its dequantised array."""
    integers, scale = codes(x, block)
    return (integers.reshape(*scale.shape, block) * scale[..., None]).reshape(x.shape)
