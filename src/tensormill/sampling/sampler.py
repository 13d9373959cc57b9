"""`Sampler`: one row of logits → one token.

Order (llama.cpp's): penalties, top-k, top-p, min-p, temperature, draw. The draw at a position depends on the seed, the
position and the logits there, on nothing else: not on the batch, nor on how often or in what order rows were sampled.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import numpy as np

from tensormill.config import SamplingConfig
from tensormill.errors import BackendError, RequestError
from tensormill.sampling.chain import keep
from tensormill.sampling.penalties import Penalties


class Sampler:
    """Chooses the tokens of one sequence; `seed` is the configured one, or a random one."""

    def __init__(self, config: SamplingConfig, n_vocab: int) -> None:
        self.config = config
        self.n_vocab = n_vocab
        self.seed = secrets.randbits(64) if config.seed is None else config.seed
        self.position = 0
        self._penalties = Penalties(config)

    def accept(self, token: int) -> None:
        """Take note of the next token of the sequence, prompt or answer."""
        self.accept_all((token,))

    def accept_all(self, tokens: Iterable[int]) -> None:
        """Take note of the next tokens of the sequence, in order."""
        tokens = list(tokens)
        self.position += len(tokens)
        self._penalties.accept(tokens)

    def sample(self, logits: np.ndarray, *, position: int | None = None, allowed: np.ndarray | None = None) -> int:
        """The token at `position` (default: after all accepted ones) for float32 `logits` [V].

        `allowed` bool [V]: which tokens a grammar lets through, before anything else is looked at. Raises RequestError if the row has the wrong length, BackendError if it holds NaN or only -inf.
        """
        if logits.shape != (self.n_vocab,):
            raise RequestError(f"logits must have the shape ({self.n_vocab},), not {logits.shape}")
        row = self._penalties.apply(logits)
        if allowed is not None:
            row = np.where(allowed, row, np.float32(-np.inf))
        best = int(row.argmax())
        if not np.isfinite(row[best]):
            raise BackendError(f"the model gave {row[best]} as its largest logit: the file or a kernel is broken")
        if self.config.temperature == 0:
            return best
        return self._drawn(row, self.position if position is None else position)

    def _drawn(self, row: np.ndarray, position: int) -> int:
        config = self.config
        every = not 0 < config.top_k < len(row) and config.top_p == 1 and config.min_p == 0
        ids = None if every else keep(row, config.top_k, config.top_p, config.min_p)
        kept = row if ids is None else row[ids]
        weights = np.subtract(kept, kept.max(), dtype=np.float32)
        weights /= np.float32(config.temperature)
        np.exp(weights, out=weights)
        index = pick(weights, uniform(self.seed, position))
        return index if ids is None else int(ids[index])


def pick(weights: np.ndarray, share: float) -> int:
    """The first index at which the running sum of `weights` passes `share` of the whole."""
    rows = np.add.reduceat(weights, np.arange(0, len(weights), 512), dtype=np.float64)
    reached = np.cumsum(rows)
    wanted = share * reached[-1]
    row = min(int(np.searchsorted(reached, wanted, side="right")), len(rows) - 1)
    inside = np.cumsum(weights[row * 512 : row * 512 + 512], dtype=np.float64)
    last = int(np.flatnonzero(inside < inside[-1])[-1]) + 1 if inside[0] < inside[-1] else 0
    index = int(np.searchsorted(inside, wanted - (reached[row - 1] if row else 0.0), side="right"))
    return row * 512 + min(index, last)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), a pure function of its arguments (Philox 4×64, key = seed, counter = position)."""
    bits = np.random.Philox(key=seed, counter=position << 64)
    return float(np.random.Generator(bits).random())
