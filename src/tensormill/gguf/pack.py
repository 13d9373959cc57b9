"""Python and NumPy values → the bytes of GGUF metadata, with the types that converters and llama.cpp expect.

The opposite direction is in `metadata`; whole files are in `writer`. Misuse is a ValueError: no file is involved yet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tensormill.gguf.values import DTYPES, KIND_OF_DTYPE, SCALARS, ValueType

_INTEGERS = (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64)
_ARRAY_INTEGERS = (ValueType.INT32, ValueType.UINT32, ValueType.INT64, ValueType.UINT64)  # as token types are written


def pack_string(text: str) -> bytes:
    """Length and UTF-8 bytes."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def pack_value(value: object, kind: ValueType | None = None) -> bytes:
    """Type and value. `kind` (of the items, for a sequence) overrides what the value suggests: int → U32, I32, U64 or
    I64, the first that fits; float → F32; a list of ints → the first of I32, U32, I64, U64 that fits them all."""
    if isinstance(value, np.ndarray):
        return _pack_numbers(value, kind)
    if isinstance(value, (str, bool, int, float, np.generic)):
        kind = _kind([value], _INTEGERS) if kind is None else kind
        return struct.pack("<I", kind) + _pack_scalar(value, kind)
    if isinstance(value, Sequence):
        return _pack_list(value, kind)
    raise ValueError(f"GGUF metadata cannot hold a {type(value).__name__}")


def _pack_scalar(value: Any, kind: ValueType) -> bytes:
    if (kind is ValueType.STRING) != isinstance(value, str) or kind is ValueType.ARRAY:
        raise ValueError(f"{value!r} cannot be written as {kind.name}")
    if kind is ValueType.STRING:
        return pack_string(value)
    try:
        return SCALARS[kind].pack(value)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{value!r} cannot be written as {kind.name}: {error}") from None


def _pack_list(values: Sequence[Any], kind: ValueType | None) -> bytes:
    if kind is None and not values:
        raise ValueError("an empty list needs the type of its items")
    kind = _kind(values, _ARRAY_INTEGERS) if kind is None else kind
    head = struct.pack("<IIQ", ValueType.ARRAY, kind, len(values))
    return head + b"".join(_pack_scalar(value, kind) for value in values)


def _pack_numbers(values: np.ndarray[Any, Any], kind: ValueType | None) -> bytes:
    if values.ndim != 1:
        raise ValueError(f"a metadata array has one axis, not {values.ndim}")
    if kind is None:
        kind = KIND_OF_DTYPE.get(values.dtype.newbyteorder("<"))
    if kind not in DTYPES:
        raise ValueError(f"GGUF metadata cannot hold numbers of type {values.dtype}")
    cast = values.astype(DTYPES[kind])
    if not np.array_equal(cast, values, equal_nan=values.dtype.kind == "f") and cast.dtype.kind != "f":
        raise ValueError(f"the numbers do not fit {kind.name}")
    return struct.pack("<IIQ", ValueType.ARRAY, kind, len(values)) + cast.tobytes()


def _kind(values: Sequence[Any], integers: tuple[ValueType, ...]) -> ValueType:
    if all(isinstance(value, str) for value in values):
        return ValueType.STRING
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return ValueType.BOOL
    if all(isinstance(value, (int, np.integer)) and not isinstance(value, bool) for value in values):
        for kind in integers:
            limits = np.iinfo(DTYPES[kind].str)
            if limits.min <= min(values) and max(values) <= limits.max:
                return kind
    elif all(isinstance(value, (int, float, np.number)) and not isinstance(value, bool) for value in values):
        return ValueType.FLOAT32
    raise ValueError(f"no type of GGUF metadata fits {values[:3]!r}")
