"""Remembers the ids of words, and cuts long lines at places no token can cross, so that there are words to remember."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

ESCAPED_SPACE = "\u2581"
WHITESPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
_CAPACITY = 1 << 16
_LONGEST = 64  # characters; longer words hardly repeat


def characters(ranges: str) -> str:
    """Content of a regex character class from hexadecimal code points and ranges."""
    return "".join("-".join(chr(int(code, 16)) for code in part.split("-")) for part in ranges.split())


class WordCache:
    """Ids of a word, computed once. Bounded; emptied when full."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._known: dict[str, list[int]] = {}

    def extend(self, words: Iterable[str], out: list[int]) -> None:
        """Append the ids of all words to `out`."""
        known = self._known
        for word in words:
            ids = known.get(word)
            if ids is None:
                ids = self._encode(word)
                if len(word) <= _LONGEST:
                    if len(known) >= _CAPACITY:
                        known.clear()
                    known[word] = ids
            out += ids


def word_starts(tokens: Iterable[str]) -> re.Pattern[str]:
    """Where to cut escaped text: before each U+2581 whose left neighbour stands before a U+2581 inside no token.

    No token spans such a place, so encoding the parts apart gives the ids of the whole.
    """
    joined = {t for t in tokens if ESCAPED_SPACE in t[1:]}
    before = {t[i - 1] for t in joined for i in range(1, len(t)) if t[i] == ESCAPED_SPACE}
    unsafe = "".join(re.escape(c) for c in sorted(before | {ESCAPED_SPACE}))
    return re.compile(f"(?<=[^{unsafe}])(?={ESCAPED_SPACE})")
