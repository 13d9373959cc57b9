"""Reference: ops that move rows and cut or join axes; nothing here computes.

`Table` in `lazy.py` stands for a weight of which only wanted rows are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.lazy import Lazy

Array = npt.NDArray[Any]


def embed(ids: Array, table: Array | Lazy) -> Array:
    """ids[…] of rows of [V,D] → […,D]; a row of zeros where the id is −1."""
    wanted = np.maximum(ids, 0)
    if isinstance(table, Lazy):
        unique, inverse = np.unique(wanted, return_inverse=True)
        out: Array = table.rows(unique)[inverse].reshape(*ids.shape, -1)
    else:
        out = table[wanted]
    out[ids < 0] = 0
    return out


def gather_rows(x: Array, rows: Array) -> Array:
    """x[T,…], rows[R] → x[rows]."""
    return np.take(x, rows, axis=0)


def put_rows(x: Array, rows: Array, y: Array, *, add: bool) -> Array:
    """x[T,D] with rows[M] replaced by y[M,D], or y added to them."""
    out = x.copy()
    if add:
        np.add.at(out, rows, y)
    else:
        out[rows] = y
    return out


def reshape(x: Array, *, shape: Sequence[int | str]) -> Array:
    """The same numbers in another shape; the first axis stays."""
    return x.reshape(len(x), *(int(n) for n in shape[1:]))


def cut(x: Array, *, axis: int, start: int, stop: int) -> Array:
    """The op `slice`: start…stop of an axis after the first."""
    return np.take(x, np.arange(start, stop), axis=axis)


def concat(*xs: Array, axis: int) -> Array:
    """Values joined on an axis after the first."""
    return np.concatenate(xs, axis=axis)
