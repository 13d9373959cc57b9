"""Decoding of the K types: 256 elements in groups of 16 or 32, whose small integer scales share one or two float16.

Each function takes blocks [n, block_bytes] and gives float32 [n, 256].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensormill.gguf import GGMLType
from tensormill.quant.bits import F32, U8, codes, half, scaled, unpack_k_scales


def _q2_k(blocks: U8) -> F32:
    scales, mins = blocks[:, :16] & 15, blocks[:, :16] >> 4
    return scaled(codes(blocks[:, 16:80], 2, 32), half(blocks, 80) * scales, half(blocks, 82) * mins)


def _q3_k(blocks: U8) -> F32:
    # 16 scales of 6 bits: low four in the halves of bytes 96–103, high two in bytes 104–107.
    scales = codes(blocks[:, 96:104], 4, 8) | codes(blocks[:, 104:108], 2, 4) << np.uint8(4)
    # The third bit is stored once for all: bit g of byte i belongs to element 32g+i. Where it is 0, 4 is taken off.
    values = codes(blocks[:, 32:96], 2, 32) | codes(blocks[:, :32], 1, 32) << np.uint8(2)
    return scaled(values.view(np.int8) - np.int8(4), half(blocks, 108) * (scales.view(np.int8) - np.int8(32)))


def _with_mins(blocks: U8, values: U8) -> F32:
    scales, mins = unpack_k_scales(blocks[:, 4:16])
    return scaled(values, half(blocks, 0) * scales, half(blocks, 2) * mins)


def _q4_k(blocks: U8) -> F32:
    return _with_mins(blocks, codes(blocks[:, 16:], 4, 32))


def _q5_k(blocks: U8) -> F32:
    return _with_mins(blocks, codes(blocks[:, 48:], 4, 32) | codes(blocks[:, 16:48], 1, 32) << np.uint8(4))


def _q6_k(blocks: U8) -> F32:
    values = codes(blocks[:, :128], 4, 64) | codes(blocks[:, 128:192], 2, 32) << np.uint8(4)
    return scaled(values.view(np.int8) - np.int8(32), half(blocks, 208) * blocks[:, 192:208].view(np.int8))


DECODERS: dict[GGMLType, Callable[[U8], F32]] = {
    GGMLType.Q2_K: _q2_k,
    GGMLType.Q3_K: _q3_k,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
}
