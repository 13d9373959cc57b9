"""KV types: how keys and values of pages are kept, and what rounding that means.

One table for all backends; the numbers of a block type are those of `tensormill.quant`, in blocks of 32 along a head.
f16 beside values keeps each row of a head as sixteen-bit integers with one scale, which integer products take as they are;
keys that serve as values are float16 number by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from tensormill.errors import BackendError
from tensormill.gguf import GGMLType
from tensormill.program.ir import Cache
from tensormill.quant import decode, encode

KVType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
KV_TYPES: dict[KVType, GGMLType] = {name: GGMLType[name.upper()] for name in get_args(KVType)}

INTEGERS: tuple[KVType, ...] = ("f16", "q8_0", "q4_0")  # kept as integers with scales where values lie beside keys


def widths(cache: Cache) -> list[tuple[int, int]]:
    """(heads, head size) of a paged cache's keys and, where they are kept, its values."""
    return [part for part in (cache.k, cache.v) if part is not None]


def check_kv_type(cache: Cache, kv_type: KVType) -> None:
    """BackendError for heads that are no whole blocks of the type."""
    block = KV_TYPES[kv_type].block
    for _, size in widths(cache):
        if size % block:
            raise BackendError(
                f"cache {cache.name} has heads of {size} numbers, which are no whole blocks of {block} as {kv_type} wants; "
                "keep keys and values as f16 (--kv-type f16)"
            )


def page_bytes(cache: Cache, kv_type: KVType, page: int) -> int:
    """Bytes that a page of `page` tokens takes in this cache, padding aside; BackendError as `check_kv_type`."""
    check_kv_type(cache, kv_type)
    rows, scale = page // cache.ratio, 2 if kv_type == "f16" and cache.v is not None else 0
    return sum(rows * heads * (KV_TYPES[kv_type].row_bytes(size) + scale) for heads, size in widths(cache))


def rounded(x: npt.NDArray[Any], kv_type: KVType, *, keys: bool = False) -> npt.NDArray[np.float32]:
    """x [..., n], values or `keys`, as it is read after having been stored in a cache that keeps both.

    A row (f16) or block of 32 (q8_0, q4_0) that holds a NaN or an infinity becomes NaN.
    """
    kind = KV_TYPES[kv_type]
    values = np.asarray(x, np.float32)
    if kv_type == "f16":
        return _integers(values, keys)
    blocks = values.reshape(-1, kind.block if kind.block > 1 else max(values.shape[-1], 1))
    if kind.block == 1:
        return decode(kind, encode(kind, blocks)).reshape(values.shape)
    lost = np.flatnonzero(~np.isfinite(blocks).all(axis=1))
    finite = blocks.copy()
    finite[lost] = 0
    kept = decode(kind, encode(kind, finite))
    kept[lost] = np.nan
    return kept.reshape(values.shape)


def _integers(rows: npt.NDArray[np.float32], keys: bool) -> npt.NDArray[np.float32]:
    """Rows [..., n] as integers times a bfloat16 that is rounded up (csrc/ops/stored.h): keys at most 46000 long as vectors,
    integers of values at most 8000. Rows below 2^-40 become 0, those beyond 2^60 NaN.
    """
    most = np.nan_to_num(np.abs(rows).max(-1, keepdims=True, initial=0), nan=np.inf)
    kept = (most >= 2.0**-40) & (most < 2.0**60)
    size = np.where(kept, most, np.float32(1))
    step = size / np.float32(8000)
    if keys:
        length = np.linalg.norm(np.where(kept, rows, 0) / size, axis=-1, keepdims=True).astype(np.float32)
        step = size * np.maximum(length / np.float32(46000), np.float32(1) / np.float32(32767))
    step = ((step.view(np.uint32) + 0xFFFF) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    whole = np.rint(np.where(kept, rows, 0) * (np.float32(1) / step)) * step
    return np.asarray(np.where(most < 2.0**60, whole, np.nan), np.float32)


def put_page(parts: Sequence[npt.NDArray[Any]], data: bytes) -> None:
    """Fill the arrays that are a page, one after another, with its bytes; ValueError if there are more or fewer."""
    size = sum(part.nbytes for part in parts)
    if len(data) != size:
        raise ValueError(f"a page has {size} bytes, not {len(data)}")
    at = 0
    for part in parts:
        part[...] = np.frombuffer(data, part.dtype, part.size, at).reshape(part.shape)
        at += part.nbytes
