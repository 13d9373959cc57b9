"""Reference: writing rows to pages, and attention over what each token may see (OPS.md §3, attention sources).

Masked rows never take part in arithmetic: rows that no token of the sequence sees are not even read.
Scores, the softmax and the weighted sum are in the precision of the values, in BLAS order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.frame import Frame, Sequence
from tensormill.backends.reference.stores import PagedStore
from tensormill.program.ir import Source

Array = npt.NDArray[Any]


def kv_write(frame: Frame, store: PagedStore, k: Array, v: Array | None, *, rows: str) -> None:
    """Store k[T or C_r,G,K] and v at row index div ratio of their sequences' pages."""
    wanted, _ratio = frame.rows(rows)
    for s in frame.sequences:
        at, offsets = s.among(wanted)
        store.write(s, s.index[offsets] // store.cache.ratio, k[at], None if v is None else v[at])


def visible(index: Array, until: Array, rows: Array, ratio: int = 1, style: str = "slide", window: int = 0) -> Array:
    """Which rows [n] each token [T] sees, [T,n]: whole before `until` ends, and within the window of that style."""
    first = rows[None, :] * ratio
    seen = first + ratio <= until[:, None] + 1
    if window == 0 or style == "causal":
        return np.asarray(seen)
    distance = index[:, None] - first
    inside = {
        "slide": distance < window,
        "chunk": index[:, None] // window == first // window,
        "centred": 2 * np.abs(distance) <= window,
    }[style]
    return np.asarray(seen & inside)


def chosen(ids: Array, span: int, n: int) -> Array:
    """Selected ids [T,k], each standing for `span` rows, as a mask [T,n]; −1 chooses nothing."""
    token, place = np.nonzero(ids >= 0)
    rows = (ids[token, place] * span)[:, None] + np.arange(span)
    mask = np.zeros((len(ids), max(n, int(rows.max(initial=-1)) + 1)), bool)
    mask[token[:, None], rows] = True
    return mask[:, :n]


def look(s: Sequence, source: Source, operands: Any, style: str, window: int) -> tuple[Array, Array, Array, Array]:
    """What a sequence sees of a source: keys [n,G,K], values [n,G,Kv], first token index of each row [n], mask [T,n]."""
    rows, values, ids = operands
    if source.cache:
        cache = rows.cache
        entries = np.arange((int(s.until.max()) + 1) // cache.ratio)
        mask = visible(s.index, s.until, entries, cache.ratio, cache.style, cache.window)
    else:
        entries = s.index
        mask = visible(s.index, s.until, entries, 1, style, window)
    if source.select:
        mask = mask & chosen(ids[s.rows], source.span, len(entries))
    used = np.flatnonzero(mask.any(0))
    if source.cache:
        k, v = rows.read(s, entries[used])
        return k, k if v is None else v, entries[used] * cache.ratio, mask[:, used]
    k, v = (part[s.rows][used] for part in (rows, rows if values is None else values))
    return k, v, entries[used], mask[:, used]


def attention(
    frame: Frame, q: Array, sinks: Array | None, bias: Array | None, *operands: Any, sources: tuple[Source, ...],
    scale: float, softcap: float, v_dim: int, alibi: float, buckets: int, style: str, window: int,
) -> Array:  # fmt: skip
    """q[T,H,K] → [T,H,Kv]: one softmax over the visible rows of all sources, plus a sink logit a head without value.

    A source without values uses its keys; of values, the first `v_dim` dims count (0: all).
    """
    parts: list[Array] = []
    for s in frame.sequences:
        seen = [look(s, how, operands[3 * i : 3 * i + 3], style, window) for i, how in enumerate(sources)]
        keys, values, first, masks = zip(*seen, strict=True)
        x = np.concatenate([scores(q[s.rows], k.astype(q.dtype)) for k in keys], axis=2) * scale  # [H,T,n]
        x = softcap * np.tanh(x / softcap) if softcap else x
        distance = s.index[:, None] - np.concatenate(first)  # [T,n]
        x = x if not alibi else x - slopes(x.shape[0], alibi).astype(x.dtype)[:, None, None] * np.abs(distance)
        x = x if bias is None else x + np.moveaxis(bias[bucket(-distance, buckets)], 2, 0)
        p = weights(np.where(np.concatenate(masks, axis=1), x, -np.inf), sinks)
        split = np.split(p, np.cumsum([len(k) for k in keys])[:-1], axis=2)
        y = [weighed(w, v[..., : v_dim or None].astype(q.dtype)) for w, v in zip(split, values, strict=True)]
        parts.append(np.sum(y, axis=0))
    padding = len(q) - sum(map(len, parts))
    return np.concatenate([*parts, np.zeros((padding, *parts[0].shape[1:]), q.dtype)])


def scores(q: Array, k: Array) -> Array:
    """q[T,H,K]·k[n,G,K] → [H,T,n]; query head h reads KV head h div (H/G)."""
    (t, h, width), (n, g, _) = q.shape, k.shape
    grouped = q.reshape(t, g, h // g, width).transpose(1, 2, 0, 3)
    out: Array = grouped @ k.transpose(1, 2, 0)[:, None]
    return out.reshape(h, t, n)


def weighed(p: Array, v: Array) -> Array:
    """p[H,T,n]·v[n,G,Kv] → [T,H,Kv]."""
    (h, t, n), (_, g, width) = p.shape, v.shape
    out: Array = p.reshape(g, h // g, t, n) @ v.transpose(1, 0, 2)[:, None]
    return out.reshape(h, t, width).transpose(1, 0, 2)


def weights(x: Array, sinks: Array | None) -> Array:
    """Softmax of [H,T,n] over n, with sinks[H] in the sum; zeros for a token that sees nothing."""
    top = x.max(2, keepdims=True, initial=-np.inf)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None])
    top = np.where(np.isfinite(top), top, 0)
    e = np.exp(x - top)
    total = e.sum(2, keepdims=True) + (0 if sinks is None else np.exp(sinks[:, None, None] - top))
    return np.asarray(e / np.where(total > 0, total, 1))


def slopes(heads: int, most: float) -> npt.NDArray[np.float64]:
    """ALiBi's slope of each head: powers of 2^(−most/p), p the power of two below `heads`; the rest interleave (ggml)."""
    p = 1 << (heads.bit_length() - 1)
    h = np.arange(heads)
    out: npt.NDArray[np.float64] = np.where(h < p, 2.0 ** (-most / p * (h + 1)), 2.0 ** (-most / (2 * p) * (2 * (h - p) + 1)))
    return out


def bucket(relative: Array, buckets: int) -> Array:
    """T5's bucket of key index − query index, both directions: half of each half exact, then logarithmic up to 128."""
    half, exact = buckets // 2, buckets // 4
    n = np.abs(relative)
    far = exact + np.log(np.maximum(n, 1) / exact) / np.log(128 / exact) * (half - exact)
    return np.where(relative > 0, half, 0) + np.where(n < exact, n, np.minimum(far.astype(np.int64), half - 1))
