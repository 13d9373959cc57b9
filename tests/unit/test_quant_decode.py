"""Every block type decodes to the bits of the gguf package, or of vectors laid out by hand where it has no decoder."""

from __future__ import annotations

import time

import gguf
import numpy as np
import pytest

from tensormill.gguf import GGMLType
from tensormill.quant import DECODABLE, decode
from tensormill.quant.iq import codebook

# What gguf 0.19 cannot decode; each has a hand-made vector below.
BY_HAND = {"Q8_1", "Q8_K", "Q1_0", "Q2_0", "I8", "I16", "I32", "I64", "F64"}
REFERENCED = sorted(kind.name for kind in GGMLType if kind.name not in BY_HAND)


def half(value: float) -> bytes:
    return np.array([value], "<f2").tobytes()


def decoded(kind: GGMLType, raw: bytes) -> list[float]:
    return decode(kind, np.frombuffer(raw, np.uint8)[None])[0].tolist()


def test_every_type_is_decodable():
    assert set(GGMLType) == DECODABLE


@pytest.mark.parametrize("name", REFERENCED)
def test_bits_equal_the_gguf_package(name):
    kind = GGMLType[name]
    columns = 512 if kind.block > 1 else 37
    rows = np.random.default_rng(int(kind)).integers(0, 256, (300, kind.row_bytes(columns)), np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name])
    found = decode(kind, rows)
    assert found.dtype == np.float32
    assert found.shape == (300, columns)
    both_nan = np.isnan(found) & np.isnan(wanted)
    assert np.isfinite(found).mean() > 0.5
    assert ((found.view(np.uint32) == wanted.view(np.uint32)) | both_nan).all()


@pytest.mark.parametrize("name", REFERENCED)
def test_every_value_of_each_byte(name):
    """All 256 values at each place of a block, the other bytes 0: no code is unreachable or out of range."""
    kind = GGMLType[name]
    rows = np.zeros((kind.block_bytes, 256, kind.block_bytes), np.uint8)
    for at in range(kind.block_bytes):
        rows[at, :, at] = np.arange(256)
    rows = rows.reshape(-1, kind.block_bytes)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[name])
    assert np.array_equal(decode(kind, rows), wanted, equal_nan=True)


def test_q1_0_by_hand():
    """Bit 1 is +d, bit 0 is −d, lowest bit first."""
    assert decoded(GGMLType.Q1_0, half(0.5) + b"\x05" + bytes(14) + b"\x80") == [0.5, -0.5, 0.5] + [-0.5] * 124 + [0.5]


def test_q2_0_by_hand():
    """Four codes a byte, lowest bits first; (q − 1)·d."""
    assert decoded(GGMLType.Q2_0, half(2) + b"\xe4" + b"\x55" * 14 + b"\x03") == [-2, 0, 2, 4] + [0] * 56 + [
        4,
        -2,
        -2,
        -2,
    ]


def test_nvfp4_by_hand():
    """Scales 1 (0x38), 2 (0x40), a subnormal (0x01 = 2^-9) and the code that is no number (0x7F → 0)."""
    raw = b"\x38\x40\x01\x7f" + b"\xf1" + bytes(7) + b"\x02" + bytes(7) + b"\x70" + bytes(7) + b"\xff" * 8
    wanted = np.zeros((4, 16))
    wanted[0, 0], wanted[0, 8] = 0.5, -6
    wanted[1, 0] = 2
    wanted[2, 8] = 6 / 512
    assert decoded(GGMLType.NVFP4, raw) == wanted.ravel().tolist()


def test_mxfp4_by_hand():
    """Exponents 127 (1), 0 (2^-127, subnormal) and 254 (2^127, of which twice or more is infinite but 1.5 is not)."""
    assert decoded(GGMLType.MXFP4, b"\x7f\xf1" + bytes(15)) == [0.5] + [0] * 15 + [-6] + [0] * 15
    assert decoded(GGMLType.MXFP4, b"\x00\x02" + bytes(15))[0] == 2.0**-127
    assert decoded(GGMLType.MXFP4, b"\xfe\x43" + bytes(15))[::16] == [1.5 * 2.0**127, np.inf]


def test_q8_1_and_q8_k_by_hand():
    codes = bytes([1, 255]) + bytes(30)
    assert decoded(GGMLType.Q8_1, half(0.5) + half(9) + codes) == [0.5, -0.5] + [0] * 30
    q8_k = np.array([0.25], "<f4").tobytes() + bytes([128, 127]) + bytes(254) + b"\xff" * 32
    assert decoded(GGMLType.Q8_K, q8_k) == [-32, 31.75] + [0] * 254


def test_plain_numbers():
    for name, dtype in {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F64": "<f8"}.items():
        rows = np.array([[-3, 7, 100], [0, 1, 2]], dtype)
        assert decode(GGMLType[name], rows.view(np.uint8)).tolist() == rows.tolist()


def test_pieces_and_strides_change_nothing():
    """More blocks than one piece holds, and rows that are not contiguous."""
    rows = np.random.default_rng(0).integers(0, 256, (700, 2 * 144 + 5), np.uint8)
    found = decode(GGMLType.Q4_K, rows[:, 5:])
    for at in (0, 127, 128, 500, 699):
        assert np.array_equal(found[at], decode(GGMLType.Q4_K, rows[at : at + 1, 5:].copy())[0], equal_nan=True)
    assert decode(GGMLType.Q4_K, rows[:0, 5:]).shape == (0, 512)


def test_refuses_parts_of_blocks():
    with pytest.raises(ValueError, match="blocks of 144"):
        decode(GGMLType.Q4_K, np.zeros((1, 143), np.uint8))
    with pytest.raises(ValueError, match="uint8"):
        decode(GGMLType.F32, np.zeros((1, 4), np.float32))


def test_codebooks_have_the_sizes_of_their_codes():
    sizes = {"IQ2_XXS": (256, 8), "IQ2_XS": (512, 8), "IQ2_S": (1024, 8), "IQ3_XXS": (256, 4), "IQ3_S": (512, 4)}
    sizes |= {"IQ1_S": (2048, 8), "IQ1_M": (2048, 8), "IQ4_NL": (16,), "IQ4_XS": (16,)}
    assert {name: codebook(GGMLType[name]).shape for name in sizes} == sizes


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "IQ2_XXS"])
def test_half_a_gigabyte_would_take_under_a_minute(name):
    kind = GGMLType[name]
    rows = np.random.default_rng(0).integers(0, 256, (512, 8 * kind.block_bytes), np.uint8)
    decode(kind, rows)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        decode(kind, rows)
        times.append(time.perf_counter() - start)
    assert min(times) / rows.nbytes * 500e6 < 60
