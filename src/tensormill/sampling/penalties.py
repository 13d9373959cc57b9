"""Repetition, presence and frequency penalties over a window of the last tokens."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

import numpy as np

from tensormill.config import SamplingConfig


class Penalties:
    """Counts the last `penalty_window` tokens and lowers their logits."""

    def __init__(self, config: SamplingConfig) -> None:
        self.active = config.penalty_window != 0 and (
            config.repeat_penalty != 1 or config.presence_penalty != 0 or config.frequency_penalty != 0
        )
        self._config = config
        self._window: deque[int] = deque()
        self._counts: Counter[int] = Counter()

    def accept(self, tokens: Iterable[int]) -> None:
        """Take note of tokens, in order."""
        if not self.active:
            return
        for token in tokens:
            self._window.append(token)
            self._counts[token] += 1
            if 0 <= self._config.penalty_window < len(self._window):
                oldest = self._window.popleft()
                self._counts[oldest] -= 1
                if not self._counts[oldest]:
                    del self._counts[oldest]

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """`logits` [V], or a lowered copy: repetition scales towards minus infinity, then the other two subtract."""
        if not self.active or not self._counts:
            return logits
        config, lowered = self._config, logits.astype(np.float32)
        seen = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        times = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        inside = (seen >= 0) & (seen < len(lowered))
        seen, times = seen[inside], times[inside]
        values = lowered[seen]
        scale = np.float32(config.repeat_penalty)
        values = np.where(values > 0, values / scale, values * scale)
        lowered[seen] = values - times * np.float32(config.frequency_penalty) - np.float32(config.presence_penalty)
        return lowered
