"""Simple types encode to the bits of the gguf package; K types at an error not above a plain exhaustive search's."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from tensormill.gguf import GGMLType
from tensormill.quant import ENCODABLE, decode, encode
from tensormill.quant.bits import codes, pack_codes, pack_k_scales, unpack_k_scales

SIMPLE = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
K = {"Q4_K": (15, 32), "Q5_K": (31, 32), "Q6_K": (32, 16)}  # last code or levels, group


def weights() -> np.ndarray:
    """Gaussian rows of many sizes, and rows that are flat, one-sided, sparse, of outliers, tiny."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((120, 512)).astype(np.float32) * np.exp(rng.standard_normal((120, 1))).astype(np.float32)
    x[0], x[1], x[2] = 0, -1, 2
    x[3], x[4] = np.abs(x[3]), -np.abs(x[4]) - 3
    x[5, 1:] = 0
    x[6, ::7] *= 30
    x[7] *= 1e-7
    x[8] = np.arange(512) % 31 - 15.5
    return x


def test_the_encodable_types():
    assert {kind.name for kind in ENCODABLE} == {*SIMPLE, *K}


@pytest.mark.parametrize("name", SIMPLE)
def test_bits_equal_the_gguf_package(name):
    x = weights()
    with np.errstate(all="ignore"):
        wanted = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).view(np.uint8)
    assert np.array_equal(encode(GGMLType[name], x), wanted)


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_special_floats(name):
    """Infinities, NaNs, overflow and ties keep the gguf package's bits."""
    x = np.array([[np.inf, -np.inf, np.nan, -np.nan, 3.4e38, 1e-40, 65519, 65520, 1.00390625, 1.01171875]], np.float32)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name]).view(np.uint8)
    assert np.array_equal(encode(GGMLType[name], x), wanted)


def straightforward(x: np.ndarray, name: str) -> np.ndarray:
    """The error of each element when each group alone gets the best of 200 ranges, with scales kept in float32."""
    top, size = K[name]
    groups = x.reshape(-1, size).astype(np.float64)
    best = np.full_like(groups, np.inf)
    for part in np.linspace(0.7, 1.1, 200):
        if name == "Q6_K":
            scale = np.take_along_axis(groups, np.abs(groups).argmax(1)[:, None], 1) * part / -top
            low, least, most = 0.0, -top, top - 1
        else:
            low = np.minimum(groups.min(1, keepdims=True), 0)
            scale, least, most = (groups.max(1, keepdims=True) - low) * part / top, 0, top
        safe = np.where(scale == 0, 1, scale)
        error = np.clip(np.rint((groups - low) / safe), least, most) * scale + low - groups
        better = (error**2).sum(1) < (best**2).sum(1)
        best[better] = error[better]
    return best.reshape(x.shape)


@pytest.mark.parametrize("name", K)
def test_k_types_err_no_more_than_a_plain_search(name):
    """Ours also rounds the scales to the bits that the file has, and is still within 5 %."""
    x = weights()[9:]
    error = decode(GGMLType[name], encode(GGMLType[name], x)) - x
    rms = np.sqrt((error**2).mean(1) / (straightforward(x, name) ** 2).mean(1))
    assert np.median(rms) < 1.05
    assert rms.max() < 1.08


@pytest.mark.parametrize("name", K)
def test_k_types_on_odd_rows(name):
    """Within half a step of the widest group's grid, plus what six bits of scale lose; zeros stay zeros."""
    x = weights()
    y = decode(GGMLType[name], encode(GGMLType[name], x))
    assert np.isfinite(y).all()
    assert (y[0] == 0).all()
    step = np.abs(x).max(1, keepdims=True) * 2 / {"Q4_K": 15, "Q5_K": 31, "Q6_K": 63}[name]
    rows = np.arange(len(x)) != 7  # its scales are below float16's range
    assert (np.abs(y - x)[rows] <= 1.3 * step[rows]).all()
    assert np.abs(y[1:3] - x[1:3]).max() < 0.002


@pytest.mark.parametrize("name", K)
def test_encoding_again_loses_little(name):
    """What was decoded lies on a grid already: a second pass must find one about as good."""
    first = decode(GGMLType[name], encode(GGMLType[name], weights()[9:]))
    second = decode(GGMLType[name], encode(GGMLType[name], first))
    lost = np.sqrt(((first - weights()[9:]) ** 2).mean())
    assert np.sqrt(((second - first) ** 2).mean()) < 0.5 * lost


def test_packing_is_the_opposite_of_unpacking():
    rng = np.random.default_rng(0)
    for bits, run in ((4, 16), (4, 64), (2, 32), (2, 1), (1, 32)):
        values = rng.integers(0, 1 << bits, (5, 512), np.uint8)
        assert np.array_equal(codes(pack_codes(values, bits, run), bits, run), values)
    scales, mins = rng.integers(0, 64, (2, 9, 8), np.uint8)
    found = unpack_k_scales(pack_k_scales(scales, mins))
    assert np.array_equal(found[0], scales)
    assert np.array_equal(found[1], mins)


def test_refusals():
    x = np.ones((2, 256), np.float32)
    with pytest.raises(ValueError, match="cannot encode IQ1_S"):
        encode(GGMLType.IQ1_S, x)
    with pytest.raises(ValueError, match="multiple of 256"):
        encode(GGMLType.Q4_K, x[:, :128])
    for bad in (np.nan, np.inf):
        x[1, 5] = bad
        with pytest.raises(ValueError, match="infinities or NaNs"):
            encode(GGMLType.Q8_0, x)
    assert encode(GGMLType.Q8_0, np.ones((0, 32), np.float32)).shape == (0, 34)
