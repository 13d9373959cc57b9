"""Which tokens may be drawn: top-k, top-p and min-p over one row of logits, fast for large vocabularies.

Each filter keeps the first tokens in the order (logit falling, id rising), so all three keep a prefix of that order.
The ids come back in rising order: a draw needs no sorting, and sorting 262k logits costs 20 ms.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.intp]
Floats = npt.NDArray[np.floating]

_ROW = 512
_QUICK = 64
_BUCKETS, _PER_NAT = 4096, 64
_PIECE = 8192


def keep(logits: Floats, top_k: int, top_p: float, min_p: float) -> Ids:
    """Ids that may be drawn, rising; `logits` float32 [V] must have a finite maximum."""
    top = logits.max()
    ids = largest(logits, top_k) if 0 < top_k < len(logits) else None
    if top_p < 1:
        ids = _nucleus(logits, top, top_p) if ids is None else ids[_reaching(logits[ids], top, top_p)]
    if min_p > 0:
        bound = top + np.log(np.float32(min_p))
        ids = np.flatnonzero(logits >= bound) if ids is None else ids[logits[ids] >= bound]
    return np.arange(len(logits)) if ids is None else ids


def largest(logits: Floats, count: int) -> Ids:
    """Ids of the `count` largest of the logits [V], rising; of equal ones those with smaller ids.

    The count-th largest of the maxima of short rows bounds the count-th largest logit from below, so one comparison
    leaves few candidates.
    """
    rows = len(logits) // _ROW
    if count * 2 > rows:
        return _first(logits, np.arange(len(logits)), count)
    maxima = logits[: rows * _ROW].reshape(rows, _ROW).max(axis=1)
    bound = np.partition(maxima, rows - count)[rows - count]
    return _first(logits, np.flatnonzero(logits >= bound), count)


def _first(logits: Floats, candidates: Ids, count: int) -> Ids:
    """Of rising `candidates` the `count` with the largest logits, rising."""
    if count >= len(candidates):
        return candidates
    values = logits[candidates]
    edge = np.partition(values, len(values) - count)[len(values) - count]
    above = values > edge
    equal = np.flatnonzero(values == edge)[: count - int(np.count_nonzero(above))]
    above[equal] = True
    kept: Ids = candidates[above]
    return kept


def _reaching(values: Floats, top: np.floating, share: float, total: float | None = None) -> Ids:
    """Positions, rising, of the largest values whose weights reach `share` of `total` (default: of theirs)."""
    weights = np.exp(values - top, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    wanted = share * (weights.sum() if total is None else total)
    count = int(np.searchsorted(np.cumsum(weights[order]), wanted)) + 1
    return np.sort(order[:count])


def _nucleus(logits: Floats, top: np.floating, share: float) -> Ids:
    """As `_reaching` for a whole row: by buckets of logits, of which only the one at the edge is sorted."""
    weights = logits - top
    scaled = weights * np.float32(-_PER_NAT)
    np.exp(weights, out=weights)  # in place: fresh pages for such rows cost more than the arithmetic
    if len(logits) >= 2 * _ROW * _QUICK:
        total = weights.sum(dtype=np.float64)
        likely = largest(logits, _QUICK)
        if weights[likely].sum() > share * total:
            return likely[_reaching(logits[likely], top, share, total)]
    np.minimum(scaled, _BUCKETS - 1, out=scaled)
    reached = np.cumsum(_histogram(scaled, weights))
    wanted = share * reached[-1]
    edge = min(int(np.searchsorted(reached, wanted)), _BUCKETS - 1)
    inner = np.flatnonzero((scaled >= edge) & (scaled < edge + 1))
    missing = wanted - (reached[edge - 1] if edge else 0.0)
    order = np.argsort(-logits[inner], kind="stable")
    count = int(np.searchsorted(np.cumsum(weights[inner[order]], dtype=np.float64), missing)) + 1
    kept = scaled < edge
    kept[inner[order[:count]]] = True
    return np.flatnonzero(kept)


def _histogram(buckets: Floats, weights: Floats) -> npt.NDArray[np.float64]:
    """Sums of `weights` by the whole part of `buckets`, in pieces that stay in the cache."""
    sums = np.zeros(_BUCKETS)
    for start in range(0, len(buckets), _PIECE):
        part = slice(start, start + _PIECE)
        sums += np.bincount(buckets[part].astype(np.intp), weights[part].astype(np.float64), _BUCKETS)
    return sums
