"""Calls of the native linear kernels on NumPy arrays, as tests want them: pack, multiply a range of panels, decode."""

from __future__ import annotations

import numpy as np

from ops.linear_truth import WORDS
from tensormill.backends.cpu import _native as native
from tensormill.backends.cpu.codebooks import give_codebook
from tensormill.gguf import GGMLType


def aligned(nbytes: int) -> np.ndarray:
    """uint8 [nbytes] that starts on a 64-byte line, poisoned."""
    room = np.full(nbytes + 64, 0xFF, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]


class Packed:
    """A packed matrix of `rows` [n, row_bytes] in the file's blocks."""

    def __init__(self, kind: GGMLType, rows: np.ndarray, columns: int) -> None:
        give_codebook(kind)
        self.kind, self.rows, self.columns = kind, len(rows), columns
        self.data = aligned(native.packed_bytes(kind, len(rows), columns))
        native.pack(kind, rows, columns, self.data)

    def __call__(self, x, x_rows=None, out_rows=None, out=None, panels=None):
        """x[T, K] float32 → out[·, rows]; `panels` a range of panels (all)."""
        count = len(x) if x_rows is None else len(x_rows)
        out = np.full((count, self.rows), np.nan, np.float32) if out is None else out
        begin, end = panels or (0, -(-self.rows // 16))
        lists = [None if r is None else np.asarray(r, np.int32) for r in (x_rows, out_rows)]
        if self.kind is GGMLType.F32:
            native.multiply_floats(self.kind, self.data, self.rows, self.columns, x, out, *lists, begin, end)
        elif self.kind in WORDS:
            words, scales = code_words(x)
            native.multiply_words(self.kind, self.data, self.rows, self.columns, words, scales, out, *lists, begin, end)
        else:
            codes, scales, sums = quantise(x)
            native.multiply_codes(self.kind, self.data, self.rows, self.columns, codes, scales, sums, out, *lists, begin, end)
        return out

    def decode(self, ids):
        """Rows `ids` as float32 [n, columns]."""
        out = np.full((len(ids), self.columns), np.nan, np.float32)
        native.decode_rows(self.kind, self.data, self.rows, self.columns, np.asarray(ids, np.int32), out)
        return out


def quantise(x):
    """x[T, K] → codes, scales, sums by the native kernel."""
    t, k = x.shape
    arrays = np.empty((t, k), np.int8), np.empty((t, k // 32), np.float32), np.empty((t, k // 16), np.int16)
    native.quantise_rows(x, *arrays)
    return arrays


def code_words(x):
    """x[T, K] → words, scales by the native kernel; columns are padded to whole blocks of 64, and one more."""
    blocks = -(-x.shape[1] // 64)
    words, scales = np.full((len(x), 64 * (blocks + 1)), -1, np.int16), np.full((len(x), blocks + 1), np.nan, np.float32)
    native.code_words(x, words, scales)
    return words, scales
