"""`Sampler`: one row of logits → one token.

Order: what a grammar allows, logit bias and `min_tokens`, penalties, DRY (all on the whole row); top-k, typical, top-p, min-p,
XTC, temperature, draw. The draw at a position depends on the seed, the position and the logits there, on nothing else: not on
the batch, nor on how often or in what order rows were sampled.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import numpy as np

from tensormill.config import SamplingConfig
from tensormill.errors import BackendError, RequestError
from tensormill.sampling.chain import Ids, keep
from tensormill.sampling.dry import Dry
from tensormill.sampling.penalties import Penalties
from tensormill.sampling.unusual import typical, without_obvious
from tensormill.tokenizer import Tokenizer

_COLDEST = float(np.finfo(np.float32).tiny)  # a smaller temperature is none in float32, and dividing by it is no number


class Sampler:
    """Chooses the tokens of one sequence; `seed` is the configured one, or a random one.

    `tokenizer`: knows which tokens end an answer (for `min_tokens`) and which hold a breaker (for DRY).
    """

    def __init__(self, config: SamplingConfig, n_vocab: int, tokenizer: Tokenizer | None = None) -> None:
        self.config = config
        self.n_vocab = n_vocab
        self.seed = secrets.randbits(64) if config.seed is None else config.seed
        self.position = 0
        self._first = 0  # position of the answer's first token
        self._penalties = Penalties(config)
        self._dry = Dry(config, tokenizer.piece if tokenizer else None)
        check_biases(config, n_vocab)
        self._biased = np.array([t for t, _ in config.logit_bias], np.int64)
        self._bias = np.array([b for _, b in config.logit_bias], np.float32)
        self._ends = np.array([t for t in sorted(tokenizer.end_ids) if t < n_vocab] if tokenizer else [], np.int64)

    def accept(self, token: int) -> None:
        """Take note of the next token of the sequence, prompt or answer."""
        self.accept_all((token,))

    def accept_all(self, tokens: Iterable[int]) -> None:
        """Take note of the next tokens of the sequence, in order."""
        tokens = list(tokens)
        self.position += len(tokens)
        self._penalties.accept(tokens)
        self._dry.accept(tokens)

    def begin(self, prompt: Iterable[int]) -> None:
        """Take note of the prompt; the answer, of at least `min_tokens`, begins behind it."""
        self.accept_all(prompt)
        self._first = self.position

    def sample(self, logits: np.ndarray, *, position: int | None = None, allowed: np.ndarray | None = None) -> int:
        """The token at `position` (default: after all accepted ones) for float32 `logits` [V].

        `allowed` bool [V]: which tokens a grammar lets through; where it leaves no other, bans and `min_tokens` give way.
        Raises RequestError if the row has the wrong length or everything is banned, BackendError if it holds NaN or only -inf.
        """
        if logits.shape != (self.n_vocab,):
            raise RequestError(f"logits must have the shape ({self.n_vocab},), not {logits.shape}")
        position = self.position if position is None else position
        row = self._lowered(self._biased_row(logits, allowed, position))
        best = int(row.argmax())
        if not np.isfinite(row[best]):
            raise BackendError(f"the model gave {row[best]} as its largest logit: the file or a kernel is broken")
        return best if self.config.temperature < _COLDEST else self._drawn(row, position)

    def _biased_row(self, logits: np.ndarray, allowed: np.ndarray | None, position: int) -> np.ndarray:
        early = len(self._ends) > 0 and position - self._first < self.config.min_tokens
        if allowed is None and not len(self._biased) and not early:
            return logits
        row = logits.astype(np.float32) if allowed is None else np.where(allowed, logits, np.float32(-np.inf))
        if not len(self._biased) and not early:
            return row
        masked = None if allowed is None else row.copy()
        row[self._biased] += self._bias
        if early:
            row[self._ends] = -np.inf
        if row.max() > -np.inf or not logits.max() > -np.inf:
            return row
        if masked is None:
            raise RequestError("logit-bias and min-tokens together leave no token that may be drawn")
        return masked

    def _lowered(self, row: np.ndarray) -> np.ndarray:
        return self._dry.apply(self._penalties.apply(row))

    def _drawn(self, row: np.ndarray, position: int) -> int:
        share, chance = uniforms(self.seed, position)
        ids = self._kept(row, chance)
        kept = row if ids is None else row[ids]
        weights = np.subtract(kept, kept.max(), dtype=np.float32)
        weights /= np.float32(self.config.temperature)
        np.exp(weights, out=weights)
        index = pick(weights, share)
        return index if ids is None else int(ids[index])

    def _kept(self, row: np.ndarray, chance: float) -> Ids | None:
        """Ids that may be drawn, rising; None: all of them."""
        config = self.config
        ids: Ids | None = None
        some = 0 < config.top_k < len(row)
        if config.typical_p < 1:
            ids = keep(row, config.top_k, 1.0, 0.0)
            ids = ids[typical(row[ids], config.typical_p)]
            ids = ids[keep(row[ids], 0, config.top_p, config.min_p)]
        elif some or config.top_p < 1 or config.min_p > 0:
            ids = keep(row, config.top_k, config.top_p, config.min_p)
        if chance < config.xtc_probability:
            ids = np.arange(len(row)) if ids is None else ids
            ids = ids[without_obvious(row[ids], config.xtc_threshold)]
        return ids


def check_biases(config: SamplingConfig, n_vocab: int) -> None:
    """RequestError if a token has a bias that is none of the `n_vocab`."""
    largest = max((token for token, _ in config.logit_bias), default=-1)
    if largest >= n_vocab:
        raise RequestError(f"logit-bias names token {largest}; there are {n_vocab}")


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


def uniforms(seed: int, position: int) -> tuple[float, float]:
    """Two numbers in [0, 1), a pure function of the arguments (Philox 4×64, key = seed, counter = position)."""
    random = np.random.Generator(np.random.Philox(key=seed, counter=position << 64))
    return float(random.random()), float(random.random())


def uniform(seed: int, position: int) -> float:
    """The first of the two."""
    return uniforms(seed, position)[0]
