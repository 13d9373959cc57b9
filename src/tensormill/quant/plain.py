"""Decoding of unquantised numbers and of the types with one scale a block: Q4_0 … Q8_K, TQ, FP4, Q1_0, Q2_0.

Each function takes blocks [n, block_bytes] and gives float32 [n, block]. The K and IQ types are in `k` and `iq`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensormill.gguf import GGMLType
from tensormill.quant.bits import F32, U8, bit_codes, codes, half, scaled

# E2M1 times two, by code; the scales below are halved in turn.
_FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _number(dtype: str) -> Callable[[U8], F32]:
    return lambda blocks: blocks.view(dtype).astype(np.float32)


def _bf16(blocks: U8) -> F32:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: U8) -> F32:
    return scaled(codes(blocks[:, 2:], 4, 16).view(np.int8) - np.int8(8), half(blocks, 0))


def _q4_1(blocks: U8) -> F32:
    return scaled(codes(blocks[:, 4:], 4, 16), half(blocks, 0)) + half(blocks, 2)


def _fives(blocks: U8, at: int) -> U8:
    return codes(blocks[:, at + 4 :], 4, 16) | bit_codes(blocks[:, at : at + 4]) << np.uint8(4)


def _q5_0(blocks: U8) -> F32:
    return scaled(_fives(blocks, 2).view(np.int8) - np.int8(16), half(blocks, 0))


def _q5_1(blocks: U8) -> F32:
    return scaled(_fives(blocks, 4), half(blocks, 0)) + half(blocks, 2)


def _q8_0(blocks: U8) -> F32:
    return scaled(blocks[:, 2:].view(np.int8), half(blocks, 0))


def _q8_1(blocks: U8) -> F32:
    return scaled(blocks[:, 4:].view(np.int8), half(blocks, 0))


def _q8_k(blocks: U8) -> F32:
    return scaled(blocks[:, 4:260].view(np.int8), blocks[:, :4].view("<f4"))


def _q1_0(blocks: U8) -> F32:
    return scaled(bit_codes(blocks[:, 2:]).view(np.int8) * np.int8(2) - np.int8(1), half(blocks, 0))


def _q2_0(blocks: U8) -> F32:
    return scaled(codes(blocks[:, 2:], 2, 1).view(np.int8) - np.int8(1), half(blocks, 0))


def _tq2_0(blocks: U8) -> F32:
    return scaled(codes(blocks[:, :64], 2, 32).view(np.int8) - np.int8(1), half(blocks, 64))


def _trits(packed: U8, count: int, run: int) -> U8:
    """`count` trits a byte. A byte is a fraction of 256 in base 3: times 3 the next trit is the carry."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
    fractions = packed.reshape(len(packed), -1, 1, run) * powers
    return (fractions.astype(np.uint16) * np.uint16(3) >> 8).astype(np.uint8).reshape(len(packed), -1)


def _tq1_0(blocks: U8) -> F32:
    parts = _trits(blocks[:, :32], 5, 32), _trits(blocks[:, 32:48], 5, 16), _trits(blocks[:, 48:52], 4, 4)
    return scaled(np.concatenate(parts, axis=1).view(np.int8) - np.int8(1), half(blocks, 52))


def _mxfp4(blocks: U8) -> F32:
    exponent = blocks[:, :1].astype(np.uint32)
    # Half of 2^(e-127): the two lowest exponents are subnormal.
    scale = np.where(exponent < 2, 0x00200000 << exponent, (exponent - 1) << 23).astype(np.uint32).view(np.float32)
    return scaled(_FP4.take(codes(blocks[:, 1:], 4, 16)), scale)


def _ue4m3() -> F32:
    """Half the value of each unsigned E4M3 code; the top bit is ignored, code 0x7F is no number but 0."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    value = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(1 + mantissa / 8, exponent - 7)) / 2
    return np.where(code == 0x7F, 0, value).astype(np.float32)


_UE4M3 = _ue4m3()


def _nvfp4(blocks: U8) -> F32:
    return scaled(_FP4.take(codes(blocks[:, 4:], 4, 8)), _UE4M3.take(blocks[:, :4]))


DECODERS: dict[GGMLType, Callable[[U8], F32]] = {
    GGMLType.F32: lambda blocks: blocks.view("<f4"),
    GGMLType.F16: _number("<f2"),
    GGMLType.BF16: _bf16,
    GGMLType.F64: _number("<f8"),
    GGMLType.I8: _number("i1"),
    GGMLType.I16: _number("<i2"),
    GGMLType.I32: _number("<i4"),
    GGMLType.I64: _number("<i8"),
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q8_1: _q8_1,
    GGMLType.Q8_K: _q8_k,
    GGMLType.Q1_0: _q1_0,
    GGMLType.Q2_0: _q2_0,
    GGMLType.TQ1_0: _tq1_0,
    GGMLType.TQ2_0: _tq2_0,
    GGMLType.MXFP4: _mxfp4,
    GGMLType.NVFP4: _nvfp4,
}
