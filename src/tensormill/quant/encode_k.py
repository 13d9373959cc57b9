"""Encoding of Q4_K, Q5_K and Q6_K: for each group the scale (and min) of least squared error among many.

Ours, not a copy of llama.cpp's search: files differ in bits from its, at no greater error. Layouts are in `k`.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

from tensormill.quant.bits import F32, U8, half_bytes, pack_codes, pack_k_scales

# By how many codes the greatest element is moved from the last code. Mostly inwards: clipping it a little serves the
# rest. On Gaussian weights 16 tries of this range beat 21 of −2 … 2. Zero first, so that exact fits stay exact.
_TRIES = np.array(sorted(np.arange(-12, 4) / 5, key=abs), np.float32)


def _as_half(values: F32) -> F32:
    """Rounded to float16, as the file will hold them."""
    return values.astype(np.float16).astype(np.float32)


def _divided(values: F32, by: F32) -> F32:
    """values/by, and 0 where by is 0."""
    return np.divide(values, by, out=np.zeros(np.broadcast_shapes(values.shape, by.shape), np.float32), where=by != 0)


def _fit_with_min(x: F32, q: F32) -> tuple[F32, F32, F32]:
    """Scale, min ≥ 0 and squared error (less Σx²) of the least squares fit x ≈ scale·q − min, over the last axis."""
    n = np.float32(x.shape[-1])
    sq, sqq, sx, sxq = q.sum(-1), (q * q).sum(-1), x.sum(-1), (x * q).sum(-1)
    scale = _divided(n * sxq - sx * sq, n * sqq - sq * sq)
    shift = (sx - scale * sq) / n
    free = shift <= 0
    scale = np.where(free, scale, _divided(sxq, sqq))
    shift = np.where(free, shift, np.float32(0))
    error = scale * (scale * sqq - 2 * sxq) + shift * (n * shift - 2 * sx) + 2 * scale * shift * sq
    return scale, -shift, np.where(scale < 0, np.float32(np.inf), error)


def _search_with_min(x: F32, top: int) -> tuple[F32, F32]:
    """Best scale and min of each group, x [n, groups, elements] → two of [n, groups]; codes are 0 … top."""
    low = np.minimum(x.min(-1), 0)
    span = x.max(-1) - low
    lifted = x - low[..., None]
    scale, least = np.zeros_like(low), -low
    best = np.full_like(low, np.inf)
    for extra in _TRIES:
        q = np.rint(lifted * _divided(top + extra, span)[..., None]).clip(0, top)
        tried = _fit_with_min(x, q)
        better = tried[2] < best
        scale, least, best = (np.where(better, new, old) for new, old in zip(tried, (scale, least, best), strict=True))
    return scale, least


def _encode_with_min(blocks: F32, top: int) -> tuple[U8, U8]:
    """The first 16 bytes (d, dmin, scales) and the codes 0 … top of blocks of eight groups."""
    x = blocks.reshape(-1, 8, 32)
    scale, least = _search_with_min(x, top)
    d = _as_half(scale.max(1, keepdims=True) / 63)
    dmin = _as_half(least.max(1, keepdims=True) / 63)
    scales, mins, q = _round_with_min(x, top, (d, _divided(scale, d)), (dmin, _divided(least, dmin)))
    packed = pack_k_scales(scales.astype(np.uint8), mins.astype(np.uint8))
    values = q.astype(np.uint8).reshape(len(blocks), 256)
    return np.concatenate([half_bytes(d), half_bytes(dmin), packed], axis=1), values


def _round_with_min(x: F32, top: int, scale: tuple[F32, F32], least: tuple[F32, F32]) -> tuple[F32, F32, F32]:
    """The 6-bit scales and mins about those wanted (each: unit, multiple) that err least together, and the codes.

    Rounding each to the nearest is worse: where a scale rounds up, a larger min can make up for it.
    """
    (d, wanted_scales), (dmin, wanted_mins) = scale, least
    scales, mins, codes = np.zeros_like(wanted_scales), np.zeros_like(wanted_mins), np.zeros_like(x)
    best = np.full_like(scales, np.inf)
    for move_scale, move_min in product((0, -1, 1), repeat=2):
        tried_scales = (np.rint(wanted_scales) + np.float32(move_scale)).clip(0, 63)
        tried_mins = (np.rint(wanted_mins) + np.float32(move_min)).clip(0, 63)
        step = (d * tried_scales)[..., None]
        lifted = x + (dmin * tried_mins)[..., None]
        q = np.rint(_divided(lifted, step)).clip(0, top)
        error = np.square(lifted - step * q).sum(-1)
        better = error < best
        best = np.where(better, error, best)
        scales, mins = np.where(better, tried_scales, scales), np.where(better, tried_mins, mins)
        codes = np.where(better[..., None], q, codes)
    return scales, mins, codes


def encode_q4_k(blocks: F32) -> U8:
    """float32 [n, 256] → [n, 144]."""
    head, q = _encode_with_min(blocks, 15)
    return np.concatenate([head, pack_codes(q, 4, 32)], axis=1)


def encode_q5_k(blocks: F32) -> U8:
    """float32 [n, 256] → [n, 176]."""
    head, q = _encode_with_min(blocks, 31)
    return np.concatenate([head, pack_codes(q >> np.uint8(4), 1, 32), pack_codes(q & np.uint8(15), 4, 32)], axis=1)


def _search_symmetric(x: F32, levels: int) -> F32:
    """Best scale of each group, x [n, groups, elements] → [n, groups]; codes are −levels … levels−1."""
    largest = np.take_along_axis(x, np.abs(x).argmax(-1)[..., None], axis=-1)
    scale = np.zeros_like(largest[..., 0])
    best = np.zeros_like(scale)
    for extra in _TRIES:
        q = np.rint(x * _divided(-(levels + extra), largest)).clip(-levels, levels - 1)
        sxq, sqq = (x * q).sum(-1), (q * q).sum(-1)
        tried = _divided(sxq, sqq)
        gain = tried * sxq  # by which the squared error falls below Σx²
        scale, best = np.where(gain > best, tried, scale), np.maximum(gain, best)
    return scale


def encode_q6_k(blocks: F32) -> U8:
    """float32 [n, 256] → [n, 210]."""
    x = blocks.reshape(-1, 16, 16)
    scale = _search_symmetric(x, 32)
    largest = np.take_along_axis(scale, np.abs(scale).argmax(1)[:, None], axis=1)
    d = _as_half(largest / np.float32(-128))
    scales = np.rint(_divided(scale, d)).clip(-128, 127)
    q = np.rint(_divided(x, (d * scales)[..., None])).clip(-32, 31)
    values: npt.NDArray[np.uint8] = (q + 32).astype(np.uint8).reshape(len(blocks), 256)
    low, high = pack_codes(values & np.uint8(15), 4, 64), pack_codes(values >> np.uint8(4), 2, 32)
    return np.concatenate([low, high, scales.astype(np.int8).view(np.uint8), half_bytes(d)], axis=1)
