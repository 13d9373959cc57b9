"""Cuts text into words by a family's stages (pre.py): Oniguruma through the `tokenizers` library, and three rules of ours.

Where regexes would backtrack quadratically (long digit runs cut in threes from the right), plain code does it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise

from tokenizers import Regex, pre_tokenizers

from tensormill.tokenizer.pre import METASPACE, THOUSANDS, THOUSANDS_ASCII

Splitter = Callable[[list[str]], list[str]]
ESCAPED_SPACE = "\u2581"


def splitter(stages: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A function from text to words, which joined give the text (but for METASPACE, which adds spaces)."""
    steps: list[Splitter] = []
    for named, group in groupby(stages, lambda s: s in _NAMED):
        run = list(group)
        steps += [_NAMED[s] for s in run] if named else [_regex_step(run)]

    def split(text: str) -> list[str]:
        words = [text]
        for step in steps:
            words = step(words)
        return words

    return split


def _regex_step(patterns: list[str]) -> Splitter:
    chain = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])

    def step(words: list[str]) -> list[str]:
        return [piece for word in words for piece, _ in chain.pre_tokenize_str(word)]

    return step


def _is_number(c: str) -> bool:
    return unicodedata.category(c)[0] == "N"


def _in_threes(run: str) -> Iterator[str]:
    head = len(run) % 3
    if head:
        yield run[:head]
    for i in range(head, len(run), 3):
        yield run[i : i + 3]


def _thousands(words: list[str]) -> list[str]:
    out: list[str] = []
    for word in words:
        for number, run in groupby(word, _is_number):
            text = "".join(run)
            out += _in_threes(text) if number else [text]
    return out


def _thousands_ascii(words: list[str]) -> list[str]:
    """Cut before each full group of three; the first, short group stays with what precedes it."""
    out: list[str] = []
    for word in words:
        cuts = [p for m in re.finditer("[0-9]+", word) for p in range(m.end() - 3, m.start() - 1, -3)]
        bounds = [0, *sorted(c for c in cuts if c > 0), len(word)]
        out += [word[a:b] for a, b in pairwise(bounds)]
    return out


def _metaspace(words: list[str]) -> list[str]:
    out: list[str] = []
    for word in words:
        if word.strip("\n"):
            start = word if word.startswith(ESCAPED_SPACE) else ESCAPED_SPACE + word
            out += re.findall(f"{ESCAPED_SPACE}[^{ESCAPED_SPACE}]*", start)
        else:
            out.append(word)
    return out


_NAMED: dict[str, Splitter] = {
    THOUSANDS: _thousands,
    THOUSANDS_ASCII: _thousands_ascii,
    METASPACE: _metaspace,
}
