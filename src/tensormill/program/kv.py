"""KV types: how keys and values of pages are kept, and what rounding that means.

One table for all backends; the numbers of a block type are those of `tensormill.quant`, in blocks of 32 along a head.
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
    """Bytes that a page of `page` tokens takes in this cache, padding aside."""
    rows = page // cache.ratio
    return sum(rows * heads * KV_TYPES[kv_type].row_bytes(size) for heads, size in widths(cache))


def rounded(x: npt.NDArray[Any], kv_type: KVType) -> npt.NDArray[np.float32]:
    """x [..., n] as it is read after having been stored; a block that holds a NaN or an infinity becomes NaN."""
    kind = KV_TYPES[kv_type]
    values = np.asarray(x, np.float32)
    blocks = values.reshape(-1, kind.block if kind.block > 1 else max(values.shape[-1], 1))
    if kind.block == 1:
        return decode(kind, encode(kind, blocks)).reshape(values.shape)
    lost = np.flatnonzero(~np.isfinite(blocks).all(axis=1))
    finite = blocks.copy()
    finite[lost] = 0
    kept = decode(kind, encode(kind, finite))
    kept[lost] = np.nan
    return kept.reshape(values.shape)


def put_page(parts: Sequence[npt.NDArray[Any]], data: bytes) -> None:
    """Fill the arrays that are a page, one after another, with its bytes; ValueError if there are more or fewer."""
    size = sum(part.nbytes for part in parts)
    if len(data) != size:
        raise ValueError(f"a page has {size} bytes, not {len(data)}")
    at = 0
    for part in parts:
        part[...] = np.frombuffer(data, part.dtype, part.size, at).reshape(part.shape)
        at += part.nbytes
