"""How many tokens of prompts go beside decoding ones in a step: as many as keep the answers flowing.

Whoever decodes waits for a whole step, so prompts get the rest of a tenth of a second, or once more the time that decoding
takes by itself where that is longer (else a large model would hardly read prompts). Both times are measured as steps run.
"""

from __future__ import annotations

_SECONDS = 0.1  # that a step with prompts may take, if decoding leaves enough of it
_LEAST, _MOST = 16, 1 << 20  # tokens of prompts a step, whatever they cost; while nothing was measured
_FADE = 0.8  # weight of the past, a step
_SURPRISE = 3.0  # a step that takes more than so many times what was expected was held up by something else


class Pace:
    """`stepped` after each step; `room` before the next, if anybody decodes."""

    def __init__(self) -> None:
        self._decoding = 0.0  # seconds of a step without prompts
        self._seconds = self._tokens = 0.0  # fading sums over steps with prompts: what these cost, how many they were

    def room(self) -> int:
        """How many tokens of prompts the next step may take."""
        if not self._seconds:
            return _MOST
        seconds = max(_SECONDS - self._decoding, self._decoding)
        return max(int(seconds * self._tokens / self._seconds), _LEAST)

    def stepped(self, decoding: int, prompts: int, seconds: float) -> None:
        """A step of so many tokens, decoding ones (guesses too) and those of prompts, took so long."""
        if not prompts:
            expected = self._decoding or seconds
            self._decoding += (1 - _FADE) * (min(seconds, _SURPRISE * expected) - expected) if self._decoding else seconds
            return
        cost = max(seconds - (self._decoding if decoding else 0.0), 0.0)
        if self._seconds:
            cost = min(cost, _SURPRISE * prompts * self._seconds / self._tokens)
        self._seconds = _FADE * self._seconds + cost
        self._tokens = _FADE * self._tokens + prompts
