"""How far one set of next-token distributions is from another, position by position, and what that comes to.

Logits are handed over a few rows at a time, so memory stays bounded; a handful of numbers a position are kept. Sums run in
float64. Definitions and names are those of llama-perplexity --kl-divergence, which besides rounds its base to 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer[Any]]

FLOOR = -16.0  # tokens less likely than e^-16 in the base do not count
PERCENTILES = (99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1)


def log_softmax(logits: Floats) -> Doubles:
    """Natural log-probabilities of logits [n, V], in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def divergences(base: Doubles, other: Doubles) -> Doubles:
    """Σ p·(ln p − ln q) of each row of two sets of log-probabilities [n, V], p being the base's."""
    terms = np.exp(base) * (base - other)
    return np.asarray(np.where(base > FLOOR, terms, 0.0).sum(axis=-1))


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over positions and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Floats) -> Mean:
        """Of one value a position; the error is 0 for fewer than two."""
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return cls(float(values.mean()), spread / len(values) ** 0.5)


@dataclass(slots=True)
class Perplexity:
    """How surprised a model is by a text: add rows, then read `mean` (nats a token) and `value`."""

    _losses: list[Doubles] = field(default_factory=list)

    def add(self, logits: Floats, targets: Ints) -> None:
        """Rows [n, V] and the tokens [n] that follow them."""
        self._losses.append(-log_softmax(logits)[np.arange(len(targets)), targets])

    @property
    def losses(self) -> Doubles:
        """−ln p of each token."""
        return np.concatenate(self._losses) if self._losses else np.empty(0)

    @property
    def mean(self) -> Mean:
        """Mean of −ln p."""
        return Mean.of(self.losses)

    @property
    def value(self) -> Mean:
        """The perplexity, and its standard error to first order."""
        mean = self.mean
        return Mean(float(np.exp(mean.mean)), float(np.exp(mean.mean) * mean.error))


@dataclass(slots=True)
class Divergence:
    """What distributions lose against a base's: add rows of both, then read the rest or `summary`."""

    _kl: list[Doubles] = field(default_factory=list)
    _same: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    _loss: list[Doubles] = field(default_factory=list)  # −ln p of the tokens that follow, if they are known
    _base_loss: list[Doubles] = field(default_factory=list)

    def add(self, base: Floats, other: Floats, targets: Ints | None = None) -> None:
        """Rows [n, V] of both, and the tokens [n] that follow them in the text (or never)."""
        p, q = log_softmax(base), log_softmax(other)
        self._kl.append(divergences(p, q))
        self._same.append(base.argmax(axis=-1) == other.argmax(axis=-1))
        if targets is not None:
            at = np.arange(len(targets))
            self._base_loss.append(-p[at, targets])
            self._loss.append(-q[at, targets])

    @property
    def kl(self) -> Doubles:
        """KL divergence from the base at each position, nats."""
        return np.concatenate(self._kl) if self._kl else np.empty(0)

    @property
    def same_top(self) -> npt.NDArray[np.bool_]:
        """Whether both have the same likeliest token, at each position."""
        return np.concatenate(self._same) if self._same else np.empty(0, bool)

    def summary(self) -> dict[str, Any]:
        """All of it as plain numbers; pairs are a mean and its standard error, shares are between 0 and 1."""
        kl, same = self.kl, self.same_top
        found: dict[str, Any] = {
            "positions": len(kl),
            "kl": _pair(Mean.of(kl)),
            "kl_max": float(kl.max()),
            "kl_min": float(kl.min()),
            "kl_percentiles": _percentiles(kl),
            "same_top": _pair(Mean.of(same.astype(np.float64))),
        }
        return found | self._of_targets() if self._loss else found

    def _of_targets(self) -> dict[str, Any]:
        loss, base = np.concatenate(self._loss), np.concatenate(self._base_loss)
        change = np.exp(-loss) - np.exp(-base)
        ratio, square = Mean.of(loss - base), Mean.of(change**2)
        rms = square.mean**0.5
        varied = min(float(loss.std()), float(base.std())) > 0
        return {
            "ppl": _perplexity(loss),
            "ppl_base": _perplexity(base),
            "ln_ppl_ratio": _pair(ratio),
            "ppl_ratio": [float(np.exp(ratio.mean)), float(np.exp(ratio.mean) * ratio.error)],
            "correlation": float(np.corrcoef(loss, base)[0, 1]) if varied else 1.0,
            "p_change": _pair(Mean.of(change)),
            "p_change_rms": [rms, square.error / (2 * rms) if rms else 0.0],
            "p_change_percentiles": _percentiles(change),
        }


def _pair(mean: Mean) -> list[float]:
    return [mean.mean, mean.error]


def _perplexity(losses: Doubles) -> list[float]:
    mean = Mean.of(losses)
    return [float(np.exp(mean.mean)), float(np.exp(mean.mean) * mean.error)]


def _percentiles(values: Doubles) -> dict[str, float]:
    return {f"{p:g}": float(np.percentile(values, p)) for p in PERCENTILES}
