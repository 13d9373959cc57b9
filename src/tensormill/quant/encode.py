"""float32 → the bytes of those ggml types that files are made with.

Simple types are bit-equal to the `gguf` package; the K types are searched in `encode_k`. Decoding is in `decode`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensormill.gguf import GGMLType
from tensormill.quant.bits import F32, U8, half_bytes, pack_codes
from tensormill.quant.encode_k import encode_q4_k, encode_q5_k, encode_q6_k

_PIECE = 1 << 16  # elements encoded at once


def _f32(blocks: F32) -> U8:
    return blocks.astype("<f4").view(np.uint8)


def _f16(blocks: F32) -> U8:
    return blocks.astype("<f2").view(np.uint8)


def _bf16(blocks: F32) -> U8:
    bits = blocks.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))  # to nearest, ties to even
    quiet = bits & np.uint32(0xFFFF0000) | np.uint32(1 << 22)  # a NaN stays one
    return (np.where(np.isnan(blocks), quiet, rounded) >> 16).astype("<u2").view(np.uint8)


def _inverse(d: F32) -> F32:
    """1/d, and 0 where that is infinite: such a d is 0 as float16 anyway."""
    inverse = 1 / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _symmetric(blocks: F32, levels: int) -> tuple[U8, U8]:
    """Codes 0 … 2·levels−1 about `levels`, and d, such that the largest magnitude becomes code 0 exactly."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    d = largest / np.float32(-levels)
    values = blocks * _inverse(d) + np.float32(levels + 0.5)
    return values.astype(np.uint8).clip(0, 2 * levels - 1), half_bytes(d)


def _between(blocks: F32, steps: int) -> tuple[U8, U8]:
    """Codes 0 … steps from the least to the greatest element, and (d, m)."""
    least, greatest = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    d = (greatest - least) / np.float32(steps)
    values = (blocks - least) * _inverse(d) + np.float32(0.5)
    return values.astype(np.uint8).clip(0, steps), np.concatenate([half_bytes(d), half_bytes(least)], axis=1)


def _fives(values: U8) -> tuple[U8, U8]:
    """Fifth bits and nibbles of 5-bit codes."""
    high = np.packbits(values >> np.uint8(4), axis=1, bitorder="little")
    return high, pack_codes(values & np.uint8(15), 4, 16)


def _q4_0(blocks: F32) -> U8:
    values, d = _symmetric(blocks, 8)
    return np.concatenate([d, pack_codes(values, 4, 16)], axis=1)


def _q4_1(blocks: F32) -> U8:
    values, head = _between(blocks, 15)
    return np.concatenate([head, pack_codes(values, 4, 16)], axis=1)


def _q5_0(blocks: F32) -> U8:
    values, d = _symmetric(blocks, 16)
    return np.concatenate([d, *_fives(values)], axis=1)


def _q5_1(blocks: F32) -> U8:
    values, head = _between(blocks, 31)
    return np.concatenate([head, *_fives(values)], axis=1)


def _q8_0(blocks: F32) -> U8:
    d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    values = blocks * _inverse(d)
    whole = np.floor(np.abs(values))
    rounded = np.copysign(whole + np.floor(2 * (np.abs(values) - whole)), values)  # halves away from zero
    return np.concatenate([half_bytes(d), rounded.astype(np.int8).view(np.uint8)], axis=1)


_ENCODERS: dict[GGMLType, Callable[[F32], U8]] = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q4_K: encode_q4_k,
    GGMLType.Q5_K: encode_q5_k,
    GGMLType.Q6_K: encode_q6_k,
}

ENCODABLE: frozenset[GGMLType] = frozenset(_ENCODERS)


def encode(kind: GGMLType, rows: F32) -> U8:
    """float32 [n, columns] → rows of blocks, uint8 [n, row_bytes].

    ValueError for a type outside ENCODABLE, a part of a block, or infinities and NaNs in a type that has none.
    Scales beyond float16 (elements of several hundred thousand) become infinite.
    """
    if kind not in _ENCODERS:
        raise ValueError(f"cannot encode {kind.name}; known are {', '.join(sorted(k.name for k in ENCODABLE))}")
    if kind.block > 1 and not np.isfinite(rows).all():
        raise ValueError(f"{kind.name} holds finite numbers only; the rows have infinities or NaNs")
    n, columns = rows.shape
    row_bytes = kind.row_bytes(columns)
    block = kind.block if kind.block > 1 else max(1, columns)  # plain numbers go row by row
    blocks = np.ascontiguousarray(rows, np.float32).reshape(-1, block)
    out = np.empty((len(blocks), block // kind.block * kind.block_bytes), np.uint8)
    step = max(1, _PIECE // block)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            out[start : start + step] = _ENCODERS[kind](blocks[start : start + step])
    return out.reshape(n, row_bytes)
