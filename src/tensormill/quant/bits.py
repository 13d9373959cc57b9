"""Pieces that block layouts share: half floats inside blocks, codes of 1, 2 or 4 bits a byte, the 6-bit K scales.

All take and give arrays with the blocks on the first axis.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

U8: TypeAlias = npt.NDArray[np.uint8]
F32: TypeAlias = npt.NDArray[np.float32]


def half(blocks: U8, at: int) -> F32:
    """The float16 at byte `at` of each block, [n, 1]."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def codes(packed: U8, bits: int, run: int) -> U8:
    """Unpacks `bits`-wide codes, [n, bytes] → [n, elements].

    Bytes come in runs: the lowest bits of a run of `run` bytes are its first `run` elements, the next bits the next.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    wide = packed.reshape(len(packed), -1, 1, run) >> shifts
    wide &= np.uint8((1 << bits) - 1)
    return wide.reshape(len(packed), -1)


def pack_codes(values: U8, bits: int, run: int) -> U8:
    """The opposite of `codes`, [n, elements] → [n, bytes]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    wide = values.reshape(len(values), -1, 8 // bits, run) << shifts
    packed: U8 = np.bitwise_or.reduce(wide, axis=2)
    return packed.reshape(len(values), -1)


def bit_codes(packed: U8) -> U8:
    """One bit an element, lowest first, [n, bytes] → [n, 8·bytes] of 0 and 1."""
    return np.unpackbits(np.ascontiguousarray(packed), axis=-1, bitorder="little")


def scaled(values: npt.NDArray[np.generic], scales: F32, shifts: F32 | None = None) -> F32:
    """values·scale (− shift), where scales [n, groups] hold for runs of elements of equal length; → [n, elements]."""
    out = values.astype(np.float32).reshape(*scales.shape, -1)
    out *= scales[:, :, None]
    if shifts is not None:
        out -= shifts[:, :, None]
    return out.reshape(len(out), -1)


def unpack_k_scales(packed: U8) -> tuple[U8, U8]:
    """Twelve bytes of Q4_K and Q5_K → eight 6-bit scales and eight 6-bit mins.

    Bytes 0–3 hold scales 0–3 and bytes 4–7 mins 0–3 in six bits; their upper two bits are those of scales and mins
    4–7, whose lower four are the halves of bytes 8–11.
    """
    low, high, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (rest & 15) | (low >> 6 << 4)], axis=1)
    mins = np.concatenate([high & 63, (rest >> 4) | (high >> 6 << 4)], axis=1)
    return scales, mins


def pack_k_scales(scales: U8, mins: U8) -> U8:
    """The opposite of `unpack_k_scales`: eight scales and eight mins below 64 → twelve bytes."""
    four, six = np.uint8(4), np.uint8(6)
    low = scales[:, :4] | scales[:, 4:] >> four << six
    high = mins[:, :4] | mins[:, 4:] >> four << six
    return np.concatenate([low, high, scales[:, 4:] & np.uint8(15) | mins[:, 4:] << four], axis=1)


def half_bytes(values: F32) -> U8:
    """float32 [n, 1] → the bytes of float16, [n, 2]."""
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8)
