"""Decoding of the IQ types: 4 or 8 elements at once from a codebook, with signs and small scales a group.

The codebooks are data of the `gguf` package (`codebook`), read when a type is first decoded. Each function takes
blocks [n, block_bytes] and gives float32 [n, block].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt

from tensormill.gguf import GGMLType
from tensormill.quant.bits import F32, U8, codes, half, scaled

_DELTA = np.array([0.125, -0.125], np.float32)  # IQ1: added to the codebook's values, by its sign bit


@cache
def codebook(kind: GGMLType) -> F32:
    """The codebook of an IQ type, [entries, 4 or 8]; of IQ4_NL and IQ4_XS, [16]."""
    from gguf import quants

    if kind in (GGMLType.IQ4_NL, GGMLType.IQ4_XS):
        return np.array(quants.IQ4_NL.kvalues, np.float32)
    source = getattr(quants, kind.name)
    source.init_grid()
    return np.array(source.grid, np.float32).reshape(source.grid_shape)


@cache
def sign_bytes() -> U8:
    """The 8 signs (bit set: negative) that each 7-bit code of IQ2_XXS, IQ2_XS and IQ3_XXS stands for, [128]."""
    from gguf import quants

    return np.frombuffer(quants.IQ2_XXS.ksigns, np.uint8)


@cache
def _sign_table() -> F32:
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
    return (1 - 2 * bits.astype(np.float32)).astype(np.float32)


def _signed(kind: GGMLType, index: npt.NDArray[np.unsignedinteger], signs: U8, scales: F32) -> F32:
    """Codebook entries [n, any] times their signs (a byte for each 8 elements) times the group scales."""
    values = codebook(kind).take(index, axis=0).reshape(len(index), -1)
    values *= _sign_table().take(signs, axis=0).reshape(len(index), -1)
    return scaled(values, scales)


def _seven_bit_signs(words: npt.NDArray[np.uint32]) -> U8:
    """The four sign bytes that the low 28 bits of each word name, [n, words] → [n, 4·words]."""
    shifts = np.array([0, 7, 14, 21], np.uint32)
    return sign_bytes().take(words[:, :, None] >> shifts & 127).reshape(len(words), -1)


def _iq2_xxs(blocks: U8) -> F32:
    pairs = blocks[:, 2:].reshape(len(blocks), 8, 8)  # 4 codes, then a word: 4 × 7 bits of signs, 4 bits of scale
    words = np.ascontiguousarray(pairs[:, :, 4:]).view("<u4")[:, :, 0]
    scales = half(blocks, 0) * (np.float32(0.5) + (words >> 28).astype(np.float32)) * np.float32(0.25)
    return _signed(GGMLType.IQ2_XXS, pairs[:, :, :4].reshape(len(blocks), -1), _seven_bit_signs(words), scales)


def _nibble_scales(packed: U8) -> F32:
    return codes(packed, 4, 1).astype(np.float32)


def _iq2_xs(blocks: U8) -> F32:
    words = blocks[:, 2:66].view("<u2")
    scales = half(blocks, 0) * (np.float32(0.5) + _nibble_scales(blocks[:, 66:])) * np.float32(0.25)
    return _signed(GGMLType.IQ2_XS, words & np.uint16(511), sign_bytes().take(words >> 9), scales)


def _iq2_s(blocks: U8) -> F32:
    high = codes(blocks[:, 66:74], 2, 1).astype(np.uint16)
    scales = half(blocks, 0) * (np.float32(0.5) + _nibble_scales(blocks[:, 74:])) * np.float32(0.25)
    return _signed(GGMLType.IQ2_S, blocks[:, 2:34] | high << np.uint16(8), blocks[:, 34:66], scales)


def _iq3_xxs(blocks: U8) -> F32:
    words = blocks[:, 66:].view("<u4")
    scales = half(blocks, 0) * (np.float32(0.5) + (words >> 28).astype(np.float32)) * np.float32(0.5)
    return _signed(GGMLType.IQ3_XXS, blocks[:, 2:66], _seven_bit_signs(words), scales)


def _iq3_s(blocks: U8) -> F32:
    high = codes(blocks[:, 66:74], 1, 1).astype(np.uint16)
    scales = half(blocks, 0) * (1 + 2 * _nibble_scales(blocks[:, 106:]))
    return _signed(GGMLType.IQ3_S, blocks[:, 2:66] | high << np.uint16(8), blocks[:, 74:106], scales)


def _iq1(kind: GGMLType, index: npt.NDArray[np.unsignedinteger], negative: npt.NDArray[np.unsignedinteger], scales: F32) -> F32:
    """Ternary codebook entries plus or minus 1/8 (`negative` 0 or 1, for each run of elements) times the scales."""
    values = codebook(kind).take(index, axis=0).reshape(*negative.shape, -1)
    values += _DELTA.take(negative)[:, :, None]
    return scaled(values.reshape(len(index), -1), scales)


def _iq1_s(blocks: U8) -> F32:
    words = blocks[:, 34:].view("<u2")  # for each 32 elements: 4 × 3 high bits of codes, 3 bits of scale, sign of delta
    high = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & 7).astype(np.uint16)
    index = blocks[:, 2:34] | high.reshape(len(blocks), -1) << np.uint16(8)
    scales = half(blocks, 0) * (2 * (words >> 12 & 7) + 1)
    return _iq1(GGMLType.IQ1_S, index, words >> np.uint16(15), scales)


def _iq1_m(blocks: U8) -> F32:
    words = blocks[:, 48:].view("<u2")  # four 3-bit scales each; the top nibbles together are the float16
    nibbles = words >> np.array([12, 8, 4, 0], np.uint16) & np.array([15, 240, 3840, 61440], np.uint16)
    d = np.bitwise_or.reduce(nibbles, axis=1, keepdims=True).view("<f2").astype(np.float32)
    fine = words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)
    extra = codes(blocks[:, 32:48], 4, 1)  # for each 8 elements: 3 high bits of the code, sign of delta
    index = blocks[:, :32] | (extra & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    return _iq1(GGMLType.IQ1_M, index, extra >> np.uint8(3), d * (2 * fine.reshape(len(blocks), -1) + 1))


def _iq4_nl(blocks: U8) -> F32:
    return scaled(codebook(GGMLType.IQ4_NL).take(codes(blocks[:, 2:], 4, 16)), half(blocks, 0))


def _iq4_xs(blocks: U8) -> F32:
    high = blocks[:, 2:4].view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = (codes(blocks[:, 4:8], 4, 1) | high.astype(np.uint8) << np.uint8(4)).view(np.int8) - np.int8(32)
    return scaled(codebook(GGMLType.IQ4_XS).take(codes(blocks[:, 8:], 4, 16)), half(blocks, 0) * scales)


DECODERS: dict[GGMLType, Callable[[U8], F32]] = {
    GGMLType.IQ1_S: _iq1_s,
    GGMLType.IQ1_M: _iq1_m,
    GGMLType.IQ2_XXS: _iq2_xxs,
    GGMLType.IQ2_XS: _iq2_xs,
    GGMLType.IQ2_S: _iq2_s,
    GGMLType.IQ3_XXS: _iq3_xxs,
    GGMLType.IQ3_S: _iq3_s,
    GGMLType.IQ4_NL: _iq4_nl,
    GGMLType.IQ4_XS: _iq4_xs,
}
