"""Filters that do not keep the most likely tokens: locally typical sampling, and XTC, which leaves the obvious ones out."""

from __future__ import annotations

import numpy as np

from tensormill.sampling.chain import Floats, Ids


def typical(values: Floats, share: float) -> Ids:
    """Positions, rising, of the logits whose surprise is nearest to the expected one, until they reach `share`.

    Meister et al., "Locally typical sampling" (2022): |−log p − H| rising, of equal ones the first.
    """
    logp = values.astype(np.float64) - values.max()
    logp -= np.log(np.exp(logp).sum())
    p = np.exp(logp)
    real = p > 0
    entropy = -(p[real] * logp[real]).sum()
    order = np.argsort(np.abs(-logp - entropy), kind="stable")
    count = int(np.searchsorted(np.cumsum(p[order]), share)) + 1
    return np.sort(order[:count])


def without_obvious(values: Floats, threshold: float) -> Ids:
    """Positions, rising: of the logits with a probability of at least `threshold` only the least likely stays.

    Of equally likely ones the first.
    """
    weights = np.exp(values.astype(np.float64) - values.max())
    obvious = np.flatnonzero(weights >= threshold * weights.sum())
    keeps = np.ones(len(values), np.bool_)
    if len(obvious) > 1:
        keeps[obvious] = False
        keeps[obvious[np.argmin(values[obvious])]] = True
    return np.flatnonzero(keeps)
