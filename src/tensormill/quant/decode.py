"""Bytes of any ggml tensor type → float32: the truth that kernels are compared with.

One short function a type in `plain`, `k` and `iq`; here rows are cut into pieces that stay in the cache.
"""

from __future__ import annotations

import numpy as np

from tensormill.gguf import GGMLType
from tensormill.quant import iq, k, plain
from tensormill.quant.bits import F32, U8

_DECODERS = plain.DECODERS | k.DECODERS | iq.DECODERS
_PIECE = 1 << 16  # elements decoded at once: their floats take 256 KiB

DECODABLE: frozenset[GGMLType] = frozenset(_DECODERS)


def decode(kind: GGMLType, rows: U8) -> F32:
    """Rows of blocks, uint8 [n, row_bytes] → float32 [n, columns]. ValueError for a part of a block.

    Integers and F64 are rounded to float32. Infinities and NaNs of the scales pass through as arithmetic makes them.
    """
    n, row_bytes = rows.shape
    if rows.dtype != np.uint8 or row_bytes % kind.block_bytes:
        raise ValueError(f"{kind.name} rows are uint8 in blocks of {kind.block_bytes}, not {rows.dtype} [{row_bytes}]")
    columns = row_bytes // kind.block_bytes * kind.block
    block = kind.block if kind.block > 1 else max(1, columns)  # plain numbers go row by row
    blocks = np.ascontiguousarray(rows).reshape(-1, block // kind.block * kind.block_bytes)
    out = np.empty((len(blocks), block), np.float32)
    step = max(1, _PIECE // block)
    decoder = _DECODERS[kind]
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            out[start : start + step] = decoder(blocks[start : start + step])
    return out.reshape(n, columns)
