"""Reference: choosing: experts of a token, rows worth attending to; and balancing of hyper-connections."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.arithmetic import softmax
from tensormill.backends.reference.attention import chosen, visible
from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.stores import PagedStore

Array = npt.NDArray[Any]


def route(
    score: Array, bias: Array | None, ids: Array | None, *,
    k: int, groups: int, keep: int, norm: str, eps: float, scale: float,
) -> tuple[Array, Array]:  # fmt: skip
    """score[T,E] → ids[T,k], best first (equal: lowest id), and weights[T,k]; chosen by score + bias, weighed by score.

    With groups, only the `keep` best count, ranked by the sum of their two best. norm: `sum` divides by max(Σ, eps) (so an
    eps of 1e-15 serves models that add it, to float32), `softmax` is that of the chosen scores, `none` leaves them.
    """
    if ids is None:
        ids = best(limited(score if bias is None else score + bias, groups, keep), k)
    w = np.take_along_axis(score, ids, axis=1)
    if norm == "sum":
        w = w / np.maximum(w.sum(1, keepdims=True), eps)
    elif norm == "softmax":
        w = softmax(w, axis=1)
    return ids, w * scale


def best(score: Array, k: int) -> Array:
    """Ids of the k largest of each row, best first; equal ones lowest id first."""
    return np.argsort(-score, axis=-1, kind="stable")[..., :k].astype(np.int32)


def limited(score: Array, groups: int, keep: int) -> Array:
    """Scores with −∞ outside the `keep` best of `groups` equal groups."""
    if keep >= groups:
        return score
    parts = score.reshape(len(score), groups, -1)
    rank = np.sort(parts, axis=2)[:, :, -2:].sum(2)
    mask = np.zeros((len(score), groups), bool)
    np.put_along_axis(mask, best(rank, keep), True, axis=1)
    return np.where(mask[:, :, None], parts, -np.inf).reshape(score.shape)


def indexer(
    frame: Frame, q: Array, w: Array, keys: PagedStore, within: Array | None, *, k: int, block: int, span: int
) -> Array:  # fmt: skip
    """q[T,h,K], w[T,h] → ids[T,k], ascending, −1 filled: the k visible rows with the largest Σ_h w_h·relu(q_h·key).

    Equal: lowest. With `block`, ids of blocks of rows, by their largest row; that of the last visible row always.
    `within` [T,·]: only rows that those ids, of `span` rows each, cover.
    """
    out = np.full((len(q), k), -1, np.int32)
    for s in frame.sequences:
        rows = np.arange((int(s.until.max()) + 1) // keys.cache.ratio)
        mask = visible(s.index, s.until, rows, keys.cache.ratio, keys.cache.style, keys.cache.window)
        mask = mask if within is None else mask & chosen(within[s.rows], span, len(rows))
        used = np.flatnonzero(mask.any(0))
        key = keys.read(s, used)[0][:, 0].astype(q.dtype)  # [n,K]
        score = np.full(mask.shape, -np.inf, q.dtype)
        score[:, used] = np.einsum("th,thn->tn", w[s.rows], np.maximum(q[s.rows] @ key.T, 0))
        score = np.where(mask, score, -np.inf)
        out[s.rows] = [select(line, k, block) for line in score]
    return out


def select(score: Array, k: int, block: int) -> Array:
    """The k best rows, or blocks, of one token's scores [n] (−∞: not visible), ascending, −1 filled."""
    rows = np.flatnonzero(score > -np.inf)
    padded = np.concatenate([score, np.full(-len(score) % block, -np.inf, score.dtype)])
    top = padded.reshape(-1, block).max(1, initial=-np.inf)
    if block > 1 and len(rows):
        top[rows[-1] // block] = np.inf
    ids = np.sort(best(top, min(k, int((top > -np.inf).sum()))))
    return np.concatenate([ids, np.full(k - len(ids), -1)])


def sinkhorn(x: Array, *, iters: int, eps: float) -> Array:
    """x[T,m,j]: softmax over j, + eps; ÷ (Σ_m + eps); then iters − 1 times ÷ (Σ_j + eps), ÷ (Σ_m + eps)."""
    y = softmax(x, axis=2) + eps
    y = y / (y.sum(1, keepdims=True) + eps)
    for _ in range(iters - 1):
        y = y / (y.sum(2, keepdims=True) + eps)
        y = y / (y.sum(1, keepdims=True) + eps)
    return np.asarray(y)
