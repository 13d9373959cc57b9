"""Stop strings in a stream of text whose pieces know nothing of their borders."""

from __future__ import annotations

from collections.abc import Iterable


class StopMatcher:
    """Passes text through until one of `stops` has appeared, holding back only what may still become one.

    The stop that is complete first ends the text (of two, the one that began first), however the text is cut.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped: str | None = None
        """The stop string that was found."""

    def push(self, text: str) -> str:
        """What may be shown after `text` arrived; empty once stopped."""
        if self.stopped is not None:
            return ""
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.stopped = min(found)
            self._held = ""
            return text[:at]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
