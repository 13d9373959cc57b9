"""Reference: norms, reductions and element-wise functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def rms_norm(x: Array, w: Array | None, *, eps: float, over: str) -> Array:
    """x / sqrt(mean or sum of x² + eps) · w over the last axis; w broadcasts."""
    squares = np.square(x)
    total = squares.mean(-1, keepdims=True) if over == "mean" else squares.sum(-1, keepdims=True)
    out: Array = x / np.sqrt(total + eps)
    return out if w is None else out * w


def layer_norm(x: Array, w: Array | None, b: Array | None, *, eps: float) -> Array:
    """(x − mean) / sqrt(var + eps) · w + b over the last axis; the variance is that of all elements (÷ n)."""
    centred = x - x.mean(-1, keepdims=True)
    out: Array = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps)
    out = out if w is None else out * w
    return out if b is None else out + b


def softmax(x: Array, *, axis: int) -> Array:
    """exp(x − max) over its sum; −∞ gives 0, also where all are −∞."""
    top = x.max(axis, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis, keepdims=True)
    return np.asarray(e / np.where(total > 0, total, 1))


def total(x: Array, *, axis: int) -> Array:
    """The op `sum`: Σ over one axis, which goes."""
    return np.asarray(x.sum(axis))


def add(x: Array, y: Array) -> Array:
    """x + y, broadcast."""
    return x + y


def mul(x: Array, y: Array) -> Array:
    """x · y, broadcast."""
    return x * y


def where(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition is not 0, else y; what is not chosen is not read (it may be NaN)."""
    return np.where(condition != 0, x, y)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^−x), without overflow."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1, e) / (1 + e))


def gelu_tanh(x: Array) -> Array:
    """½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return np.asarray(0.5 * x * (1 + inner))


UNARY: dict[str, Callable[[Array, float, float], Array]] = {
    "affine": lambda x, a, b: a * x + b,
    "clamp": np.clip,
    "silu": lambda x, a, b: x * sigmoid(x),
    "gelu": lambda x, a, b: 0.5 * x * (1 + _erf(x / math.sqrt(2)).astype(x.dtype)),
    "gelu_tanh": lambda x, a, b: gelu_tanh(x),
    "gelu_quick": lambda x, a, b: x * sigmoid(1.702 * x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "relu2": lambda x, a, b: np.square(np.maximum(x, 0)),
    "sigmoid": lambda x, a, b: sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: np.log(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "softplus": lambda x, a, b: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "floor": lambda x, a, b: np.floor(x),
    "mod": lambda x, a, b: np.mod(x, x.dtype.type(a)),
}


def unary(x: Array, *, kind: str, a: float, b: float) -> Array:
    """One function of each element. Integers stay so under `mod` alone; elsewhere they become float32 first."""
    exact = kind == "mod" or x.dtype.kind == "f"
    return UNARY[kind](x if exact else x.astype(np.float32), a, b)
