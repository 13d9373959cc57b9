"""The thirteen value types of GGUF metadata: ids, little-endian layouts, NumPy dtypes.

Tensor types are in `types`; reading values is in `metadata`, writing them in `writer`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import numpy as np


class ValueType(IntEnum):
    """Type of a metadata value by its id in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_CODES = {
    ValueType.UINT8: ("<B", "u1"),
    ValueType.INT8: ("<b", "i1"),
    ValueType.UINT16: ("<H", "<u2"),
    ValueType.INT16: ("<h", "<i2"),
    ValueType.UINT32: ("<I", "<u4"),
    ValueType.INT32: ("<i", "<i4"),
    ValueType.FLOAT32: ("<f", "<f4"),
    ValueType.BOOL: ("<?", "?"),
    ValueType.UINT64: ("<Q", "<u8"),
    ValueType.INT64: ("<q", "<i8"),
    ValueType.FLOAT64: ("<d", "<f8"),
}

SCALARS: dict[ValueType, struct.Struct] = {kind: struct.Struct(code) for kind, (code, _) in _CODES.items()}
DTYPES: dict[ValueType, np.dtype[np.generic]] = {kind: np.dtype(name) for kind, (_, name) in _CODES.items()}
KIND_OF_DTYPE: dict[np.dtype[np.generic], ValueType] = {dtype: kind for kind, dtype in DTYPES.items()}
