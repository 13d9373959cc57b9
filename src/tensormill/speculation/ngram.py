"""Prompt lookup: a sequence that repeats itself (code, quotes, lists) is guessed from its own tokens.

The longest suffix that was there before wins, of equal ones the most recent; what followed it is the guess. An index by
short n-grams grows with the sequence, so a token costs the same however long the sequence is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tensormill.speculation.proposer import Wish


class _Index:
    """Where each n-gram of one sequence ended, the last few times."""

    __slots__ = ("at", "known")

    def __init__(self) -> None:
        self.known = 0  # n-grams that end before this token are in the index
        self.at: dict[tuple[int, ...], deque[int]] = {}


class NGram:
    """Guesses from the sequence's own tokens.

    `least`: length of a suffix from which on a match counts; `longest`: how far matches are compared; `places`: how many of
    the last places of an n-gram are compared.
    """

    def __init__(self, *, least: int = 2, longest: int = 32, places: int = 8) -> None:
        self._least = least
        self._longest = longest
        self._places = places
        self._indices: dict[str, _Index] = {}

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """For each wish what followed its longest repeated suffix, no longer than twice that suffix."""
        return [self._one(wish) for wish in wishes]

    def forget(self, id: str) -> None:
        """A sequence has ended."""
        self._indices.pop(id, None)

    @property
    def bytes(self) -> int:
        """None worth counting."""
        return 0

    def _one(self, wish: Wish) -> list[int]:
        tokens, n = wish.tokens, self._least
        index = self._grown(wish.id, tokens)
        places = index.at.get(tuple(tokens[len(tokens) - n :]), ())
        best, length = 0, 0
        for place in reversed(places):
            same = self._common(tokens, place)
            if same > length:
                best, length = place, same
        count = min(wish.most, 2 * length)
        return [tokens[best + i % (len(tokens) - best)] for i in range(count)]

    def _grown(self, id: str, tokens: Sequence[int]) -> _Index:
        index = self._indices.setdefault(id, _Index())
        n = self._least
        for end in range(max(index.known, n), len(tokens)):  # the suffix itself is not in it yet
            index.at.setdefault(tuple(tokens[end - n : end]), deque(maxlen=self._places)).append(end)
        index.known = max(index.known, len(tokens))
        return index

    def _common(self, tokens: Sequence[int], place: int) -> int:
        """How many tokens before `place` equal those before the end."""
        most, count, end = min(self._longest, place), 0, len(tokens)
        while count < most and tokens[place - 1 - count] == tokens[end - 1 - count]:
            count += 1
        return count
