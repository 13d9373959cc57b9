"""DRY ("don't repeat yourself"): a token that would prolong a repetition is lowered, the more the longer it already is.

After p-e-w's definition: a token t that stood behind an earlier copy of the last n ≥ `allowed` tokens loses
multiplier · base^(n − allowed). No copy reaches over a breaker (a token with one of the texts in it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache

import numpy as np

from tensormill.config import SamplingConfig

_LONGEST = 256  # how far copies are followed


class Dry:
    """Remembers the sequence; `apply` lowers a row of logits. `piece` gives the bytes of a token."""

    def __init__(self, config: SamplingConfig, piece: Callable[[int], bytes] | None) -> None:
        self.active = config.dry_multiplier > 0 and config.dry_window != 0
        self._config = config
        self._breaks = _breaking(tuple(text.encode() for text in config.dry_breakers), piece) if piece else lambda token: False
        self._tokens = np.empty(1024, np.int64)
        self._length = 0
        self._since = 0  # tokens behind the last breaker

    def accept(self, tokens: Iterable[int]) -> None:
        """Take note of tokens, in order."""
        if not self.active:
            return
        for token in tokens:
            if self._length == len(self._tokens):
                self._tokens = np.concatenate((self._tokens, np.empty_like(self._tokens)))
            self._tokens[self._length] = token
            self._length += 1
            self._since = 0 if self._breaks(token) else self._since + 1

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """`logits` [V], or a lowered copy."""
        config = self._config
        if not self.active or self._since < config.dry_allowed_length:
            return logits
        followers, lengths = self._copies()
        inside = (followers >= 0) & (followers < len(logits))
        if not inside.any():
            return logits
        longest = np.zeros(len(logits), np.int64)
        np.maximum.at(longest, followers[inside], lengths[inside])
        hit = [t for t in np.flatnonzero(longest >= config.dry_allowed_length) if not self._breaks(int(t))]
        lowered = logits.astype(np.float32)
        power = np.minimum(longest[hit] - config.dry_allowed_length, 80 / np.log(max(config.dry_base, 1.0001)))
        lowered[hit] -= (config.dry_multiplier * config.dry_base**power).astype(np.float32)
        return lowered

    def _copies(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens behind earlier copies of the end of the sequence, and how long each copy is."""
        window = self._config.dry_window
        tokens = self._tokens[max(0, self._length - window) if window > 0 else 0 : self._length]
        end = len(tokens) - 1
        places = np.flatnonzero(tokens[:end] == tokens[end])
        lengths = np.ones(len(places), np.int64)
        alive, size = np.arange(len(places)), 1
        while len(alive) and size < min(self._since, _LONGEST):
            alive = alive[places[alive] >= size]
            alive = alive[tokens[places[alive] - size] == tokens[end - size]]
            size += 1
            lengths[alive] = size
        return tokens[places + 1], lengths


@lru_cache(maxsize=4)
def _breaking(breakers: tuple[bytes, ...], piece: Callable[[int], bytes]) -> Callable[[int], bool]:
    """Whether a token has a breaker in it: each is looked at once, for all answers with these breakers."""
    return cache(lambda token: any(text in piece(token) for text in breakers))
