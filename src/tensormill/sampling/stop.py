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
        self.matched: str | None = None
        """The stop string that was found."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found."""
        return self.matched is not None

    def push(self, text: str) -> tuple[str, bool]:
        """What may be shown after `text` arrived (nothing once stopped), and whether the text has ended."""
        if self.stopped:
            return "", True
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            self._held = ""
            return text[:at], True
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def finish(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`, which is not in it."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0 and not stop.startswith(text[at:]):
        at = text.find(stop[0], at + 1)
    return len(text) - at if at >= 0 else 0
