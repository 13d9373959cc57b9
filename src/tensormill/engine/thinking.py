"""A bound on reasoning: once its tokens are spent, the tokens that end it are forced, and the answer follows.

Where reasoning begins and ends is seen in the text; the texts themselves are the chat format's and come with the request.
"""

from __future__ import annotations

from tensormill.engine.messages import Thinking

_TAIL = 256  # characters in which a marker is looked for


class Bound:
    """Follows one answer: `due` says which token must come next, `accept` takes each that came."""

    def __init__(self, rule: Thinking) -> None:
        self._rule = rule
        self._left = rule.budget
        self._inside = rule.open
        self._cut = False  # whether reasoning has been ended before
        self._tail = ""
        self._forced: list[int] = []

    def due(self) -> int | None:
        """The token to force, None for a free choice."""
        if self._inside and self._left <= 0 and not self._forced:
            self._forced = list(self._rule.answer if self._cut else self._rule.close)
        return self._forced[0] if self._forced else None

    def accept(self, token: int, text: str) -> None:
        """A token came, and with it this text."""
        if self._forced and token == self._forced[0]:
            del self._forced[0]
            if not self._forced:
                self._inside, self._cut, self._tail = False, True, ""
            return
        self._tail = (self._tail + text)[-_TAIL:]
        self._left -= self._inside
        marker = self._rule.end if self._inside else self._rule.begin
        if marker in self._tail:
            self._inside, self._tail = not self._inside, self._tail.split(marker)[-1]
            self._forced = []
