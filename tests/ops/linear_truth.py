"""The arithmetic of csrc/linear/linear.h in NumPy, one step after the other: what the kernels must equal bit for bit.

A weight is code · scale − min. Scales and mins are read from the file's blocks here; codes follow from the decoded
values of `tensormill.quant`, and must be whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensormill.gguf import GGMLType as G
from tensormill.quant import decode

F32 = np.ndarray
WORDS = (G.F16, G.BF16)
FLOATS = (G.F32, *WORDS)


def fma(a: F32, b: F32, c: F32) -> F32:
    """a·b + c in float32 with one rounding: in float64, rounded to odd, then to float32."""
    product = np.float64(a) * np.float64(b)
    c = np.float64(c)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, toward), total).astype(np.float32)


def quantise(x: F32) -> tuple[np.ndarray, F32, np.ndarray]:
    """x[T, K] → int8 codes [T, K], scales [T, K/32], int16 sums [T, K/16]."""
    groups = x.reshape(len(x), -1, 32)
    largest = np.abs(groups).max(-1)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest < 1e-30, np.float32(0), np.float32(127) / largest).astype(np.float32)
    u = groups * inverse[..., None]
    q = np.rint(u)
    lanes = fma(u[..., 16:], q[..., 16:], u[..., :16] * q[..., :16])
    for n in (8, 4, 2, 1):
        lanes = lanes[..., :n] + lanes[..., n:]
    with np.errstate(divide="ignore", invalid="ignore"):
        fitted = largest / np.float32(127) * (lanes[..., 0] / (q * q).sum(-1, dtype=np.float32))
    scales = np.where(largest < 1e-30, np.float32(0), fitted).astype(np.float32)
    codes = q.astype(np.int8).reshape(x.shape)
    return codes, scales, codes.reshape(len(x), -1, 16).astype(np.int16).sum(-1, dtype=np.int16)


def _half(blocks: np.ndarray, at: int) -> F32:
    return blocks[:, at : at + 2].copy().view("<f2").astype(np.float32)


def _nibbles(b: np.ndarray) -> np.ndarray:  # low, high, low, …
    return np.stack([b & 15, b >> 4], -1).reshape(len(b), -1)


def _k_scales(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, mid, high = q[:, :4], q[:, 4:8], q[:, 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], 1)
    return scales, np.concatenate([mid & 63, (high >> 4) | (mid >> 6) << 4], 1)


def _q3_k(b: np.ndarray) -> F32:
    low = np.concatenate([b[:, 96:104] & 15, b[:, 96:104] >> 4], 1)
    high = np.concatenate([(b[:, 104:108] >> s) & 3 for s in (0, 2, 4, 6)], 1)
    return _half(b, 108) * ((low | high << 4).astype(np.float32) - 32)


def _iq4_xs(b: np.ndarray) -> F32:
    high = np.stack([(b[:, 2 + j // 4] >> (2 * (j % 4))) & 3 for j in range(8)], 1)
    return _half(b, 0) * ((_nibbles(b[:, 4:8]) | high << 4).astype(np.float32) - 32)


def _odd(s: np.ndarray) -> F32:
    return (2 * s.astype(np.float32) + 1).astype(np.float32)


def _top4(b: np.ndarray, start: int, step: int) -> F32:  # the top 4 bits of little-endian words
    return _odd(b[:, start::step] >> 4)


def _iq1_m_d(b: np.ndarray) -> F32:
    words = b[:, 48:56].copy().view("<u2")
    d = np.bitwise_or.reduce(words >> 12 << np.array([0, 4, 8, 12], np.uint16), 1).astype("<u2")
    return d.view("<f2").astype(np.float32)[:, None]


def _iq1_m(b: np.ndarray) -> F32:
    words = b[:, 48:56].copy().view("<u2")
    s = np.stack([(words >> k) & 7 for k in (0, 3, 6, 9)], -1).reshape(len(b), 16)
    return _iq1_m_d(b) * _odd(s) / 8


def _ue4m3(code: np.ndarray) -> F32:
    exponent, mantissa = (code >> 3 & 15).astype(int), (code & 7).astype(float)
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * np.exp2(exponent - 7.0)) / 2
    return np.where(code == 0x7F, 0, value).astype(np.float32)


_SCALES: dict[G, tuple[int, Callable[[np.ndarray], F32]]] = {  # inputs of a group, scales of blocks
    G.Q4_0: (32, lambda b: _half(b, 0)),
    G.Q4_1: (32, lambda b: _half(b, 0)),
    G.Q5_0: (32, lambda b: _half(b, 0)),
    G.Q5_1: (32, lambda b: _half(b, 0)),
    G.Q8_0: (32, lambda b: _half(b, 0)),
    G.IQ4_NL: (32, lambda b: _half(b, 0)),
    G.Q2_K: (16, lambda b: _half(b, 80) * (b[:, :16] & 15)),
    G.Q3_K: (16, _q3_k),
    G.Q4_K: (32, lambda b: _half(b, 0) * _k_scales(b[:, 4:16])[0]),
    G.Q5_K: (32, lambda b: _half(b, 0) * _k_scales(b[:, 4:16])[0]),
    G.Q6_K: (16, lambda b: _half(b, 208) * b[:, 192:208].view(np.int8)),
    G.IQ4_XS: (32, _iq4_xs),
    G.MXFP4: (32, lambda b: np.ldexp(np.float32(1), b[:, :1].astype(int) - 128).astype(np.float32)),
    G.NVFP4: (16, lambda b: _ue4m3(b[:, :4])),
    G.Q1_0: (32, lambda b: np.repeat(_half(b, 0), 4, 1)),
    G.Q2_0: (32, lambda b: np.repeat(_half(b, 0), 2, 1)),
    G.TQ1_0: (32, lambda b: np.repeat(_half(b, 52), 8, 1)),
    G.TQ2_0: (32, lambda b: np.repeat(_half(b, 64), 8, 1)),
    G.IQ1_S: (32, lambda b: _half(b, 0) * _odd(b[:, 35::2] >> 4 & 7) / 8),
    G.IQ1_M: (16, _iq1_m),
    G.IQ2_XXS: (32, lambda b: _half(b, 0) * _top4(b, 9, 8) / 8),
    G.IQ2_XS: (16, lambda b: _half(b, 0) * _odd(_nibbles(b[:, 66:74])) / 8),
    G.IQ2_S: (16, lambda b: _half(b, 0) * _odd(_nibbles(b[:, 74:82])) / 8),
    G.IQ3_XXS: (32, lambda b: _half(b, 0) * _top4(b, 69, 4) / 4),
    G.IQ3_S: (32, lambda b: _half(b, 0) * _odd(_nibbles(b[:, 106:110]))),
}
_MINS: dict[G, Callable[[np.ndarray], F32]] = {
    G.Q4_1: lambda b: -_half(b, 2),
    G.Q5_1: lambda b: -_half(b, 2),
    G.Q2_K: lambda b: _half(b, 82) * (b[:, :16] >> 4),
    G.Q4_K: lambda b: _half(b, 2) * _k_scales(b[:, 4:16])[1],
    G.Q5_K: lambda b: _half(b, 2) * _k_scales(b[:, 4:16])[1],
}
# Where scales (and mins) are whole numbers: the d (and dmin) of a block of 256 inputs that they are multiples of.
_D: dict[G, Callable[[np.ndarray], F32]] = {
    G.Q2_K: lambda b: _half(b, 80),
    G.Q3_K: lambda b: _half(b, 108),
    G.Q4_K: lambda b: _half(b, 0),
    G.Q5_K: lambda b: _half(b, 0),
    G.Q6_K: lambda b: _half(b, 208),
    G.IQ4_XS: lambda b: _half(b, 0),
    G.TQ1_0: lambda b: _half(b, 52),
    G.TQ2_0: lambda b: _half(b, 64),
    G.IQ1_S: lambda b: _half(b, 0) / 8,
    G.IQ1_M: lambda b: _iq1_m_d(b) / 8,
    G.IQ2_XXS: lambda b: _half(b, 0) / 8,
    G.IQ2_XS: lambda b: _half(b, 0) / 8,
    G.IQ2_S: lambda b: _half(b, 0) / 8,
    G.IQ3_XXS: lambda b: _half(b, 0) / 4,
    G.IQ3_S: lambda b: _half(b, 0),
}
_DMIN: dict[G, Callable[[np.ndarray], F32]] = {
    G.Q2_K: lambda b: _half(b, 82),
    G.Q4_K: lambda b: _half(b, 2),
    G.Q5_K: lambda b: _half(b, 2),
}
QUANTISED = tuple(_SCALES)

# Bytes of a block that must not be random: offset → float16, or a range for plain bytes.
_HALVES = {
    **dict.fromkeys(QUANTISED, (0,)),
    G.Q4_1: (0, 2), G.Q5_1: (0, 2), G.Q4_K: (0, 2), G.Q5_K: (0, 2), G.Q2_K: (80, 82), G.Q3_K: (108,), G.Q6_K: (208,),
    G.TQ1_0: (52,), G.TQ2_0: (64,), G.MXFP4: (), G.NVFP4: (), G.IQ1_M: (),
}  # fmt: skip


def random_rows(kind: G, rows: int, columns: int, seed: int) -> np.ndarray:
    """Valid blocks of random bytes, uint8 [rows, row_bytes], with weights of about unit size."""
    rng = np.random.default_rng(seed)
    if kind in FLOATS:
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        if kind is G.BF16:
            return np.ascontiguousarray(values.view("<u2")[:, 1::2]).view(np.uint8)
        return values.astype("<f2" if kind is G.F16 else "<f4").view(np.uint8)
    blocks = rng.integers(0, 256, (rows * columns // kind.block, kind.block_bytes), dtype=np.uint8)
    for at in _HALVES[kind]:
        d = (rng.standard_normal(len(blocks)) * 0.01).astype("<f2")
        blocks[:, at : at + 2] = d.view(np.uint8).reshape(-1, 2)
    if kind is G.MXFP4:
        blocks[:, 0] = rng.integers(110, 130, len(blocks))
        blocks[::7, 0] = rng.integers(0, 3, len(blocks[::7]))  # subnormal scales
    if kind is G.IQ1_M:
        blocks[:, 55] = blocks[:, 55] & 15 | 0x20  # the top nibble of the scattered float16
    return blocks.reshape(rows, -1)


def split(kind: G, rows: np.ndarray) -> tuple[np.ndarray, F32, F32 | None, int]:
    """Rows of blocks → integer codes [n, K], scales [n, K/g], mins (or None), g."""
    g, scales_of = _SCALES[kind]
    blocks = rows.reshape(-1, kind.block_bytes)
    scales = scales_of(blocks).astype(np.float32).reshape(len(rows), -1)
    mins = _MINS[kind](blocks).astype(np.float32).reshape(len(rows), -1) if kind in _MINS else None
    values = decode(kind, rows)
    wide = np.repeat(scales, g, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shifted = values if mins is None else values.astype(np.float64) + np.repeat(mins, g, 1)
        codes = np.where(wide == 0, 0, np.rint(shifted / wide.astype(np.float64))).astype(np.int32)
    again = codes.astype(np.float32) * wide
    np.testing.assert_array_equal(again if mins is None else again - np.repeat(mins, g, 1), values)
    return codes, scales, mins, g


def multiply_codes(kind: G, rows: np.ndarray, x: F32) -> F32:
    """x[T, K] times quantised rows [N, row_bytes] → [T, N] float32."""
    weights, scales, mins, g = split(kind, rows)
    codes, da, _ = quantise(x)
    out = np.zeros((len(x), len(rows)), np.float32)
    whole = kind in _D
    d = _per_block(_D[kind], kind, rows) if whole else None
    dmin = _per_block(_DMIN[kind], kind, rows) if kind in _DMIN else None
    if d is not None:
        scales = _whole(scales, d)
    if dmin is not None and mins is not None:
        mins = _whole(mins, dmin)
    step = 256 // g if whole else scales.shape[1]
    for block in range(0, scales.shape[1], step):
        h, less = (np.zeros_like(out) if whole else out), np.zeros_like(out)
        for i in range(block, block + step):
            part = codes[:, g * i : g * i + g].astype(np.int64)
            isum = (part @ weights[:, g * i : g * i + g].T.astype(np.int64)).astype(np.float32)
            a = da[:, g * i // 32, None]
            product = isum * scales[None, :, i]
            if kind in _JOINED and i % 2 == 0:
                first = product
            else:
                h = fma(first + product if kind in _JOINED else product, a, h)
            if mins is not None:
                asum = part.sum(1).astype(np.float32)[:, None] * a
                if whole:
                    less = fma(mins[None, :, i], asum, less)
                else:
                    h = fma(-mins[None, :, i], asum, h)
        out = h if d is None else fma(h, d[None, :, block // step], out)
        if dmin is not None:
            out = fma(-less, dmin[None, :, block // step], out)
    return out


def code_words(x: F32, bf16: bool = False) -> tuple[np.ndarray, F32]:
    """x[T, K] → int16 codes [T, K/64, 64] of the row and zeros, scales [T, K/64], rounded up to bf16 where asked for."""
    blocks = np.pad(x, ((0, 0), (0, -x.shape[1] % 64))).reshape(len(x), -1, 64)
    largest = np.abs(blocks).max(-1)
    tiny = largest < 1e-30
    with np.errstate(divide="ignore", invalid="ignore"):
        u = (blocks * (np.float32(1) / largest)[..., None]).reshape(*largest.shape, 4, 16)
        lanes = np.zeros_like(u[..., 0, :])
        for i in range(4):
            lanes = fma(u[..., i, :], u[..., i, :], lanes)
        for n in (8, 4, 2, 1):
            lanes = lanes[..., :n] + lanes[..., n:]
        length = np.sqrt(lanes[..., 0]) / np.float32(46000)
        scales = np.where(tiny, np.float32(0), largest * np.maximum(length, np.float32(1) / np.float32(32767)))
        if bf16:
            scales = ((scales.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)
        inverse = np.where(tiny, np.float32(0), np.float32(1) / scales)
    return np.rint(blocks * inverse[..., None]).astype(np.int16), scales


def decode_words(kind: G, rows: np.ndarray) -> F32:
    """The weights that packed F16 or BF16 rows stand for, [N, K]."""
    values = decode(kind, rows)
    codes, scales = code_words(values, bf16=True)
    return (codes * scales[..., None]).reshape(len(rows), -1)[:, : values.shape[1]]


def multiply_words(kind: G, rows: np.ndarray, x: F32) -> F32:
    """x[T, K] times F16 or BF16 rows → [T, N]: exact sums of 64 products of 16-bit codes, each in one fma."""
    (weights, dw), (codes, da) = code_words(decode(kind, rows), bf16=True), code_words(x)
    out = np.zeros((len(x), len(rows)), np.float32)
    for i in range(dw.shape[1]):
        isum = codes[:, i].astype(np.int64) @ weights[:, i].T.astype(np.int64)
        assert np.abs(isum).max() < 1 << 31
        out = fma(isum.astype(np.float32), dw[None, :, i] * da[:, i, None], out)
    return out


_JOINED = (G.Q2_K, G.Q3_K, G.IQ1_M)


def _per_block(of: Callable[[np.ndarray], F32], kind: G, rows: np.ndarray) -> F32:
    return of(rows.reshape(-1, kind.block_bytes)).astype(np.float32).reshape(len(rows), -1)


def _whole(scales: F32, d: F32) -> F32:
    """Scales [N, groups] as multiples of their block's d [N, blocks]."""
    wide = np.repeat(d, scales.shape[1] // d.shape[1], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.where(wide == 0, 0, np.rint(scales / wide)).astype(np.float32)
    np.testing.assert_array_equal(whole * wide, scales)
    return whole


def multiply_floats(kind: G, rows: np.ndarray, x: F32) -> F32:
    """x[T, K] times F32 rows → [T, N]: an even and an odd chain for each 32 inputs."""
    weights = decode(kind, rows)
    out = np.zeros((len(x), len(rows)), np.float32)
    for start in range(0, x.shape[1], 32):
        chains = [np.zeros_like(out), np.zeros_like(out)]
        for k in range(start, min(start + 32, x.shape[1])):
            chains[k & 1] = fma(x[:, k, None], weights[None, :, k], chains[k & 1])
        out = out + (chains[0] + chains[1])
    return out
