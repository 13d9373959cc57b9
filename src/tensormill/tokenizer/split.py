"""Cuts text into words by a family's stages (pre.py): Oniguruma through the `tokenizers` library, and three rules of ours.

Where regexes would backtrack quadratically (long digit runs cut in threes from the right), plain code does it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import accumulate, groupby, pairwise

from tokenizers import Regex, pre_tokenizers

from tensormill.tokenizer.pre import METASPACE, THOUSANDS, THOUSANDS_ASCII
from tensormill.tokenizer.words import ESCAPED_SPACE, characters

Splitter = Callable[[list[str]], list[str]]
# New in Unicode 16, which Oniguruma knows and llama.cpp (15.1) takes for unassigned.
_NEWER = re.compile(
    f"""[{
        characters(
            "897 1b4e-1b4f 1b7f 1c89-1c8a 2427-2429 31e4-31e5 a7cb-a7cd a7da-a7dc 105c0-105f3 10d40-10d8f 10ec2-10efc "
            "11380-113e2 116d0-116e3 11bc0-11bf9 11f5a 13460-143fa 16100-16139 16d40-16d79 18cff 1cc00-1ceb3 "
            "1e5d0-1e5ff 1f8b2-1f8c1 1fa89-1fa8f 1fabe 1fac6 1fadc-1fadf 1fae9 1fbcb-1fbef"
        )
    }]"""
)
_UNASSIGNED = "\u0378"


def splitter(stages: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A function from text to words, which joined give the text (but for METASPACE, which adds spaces)."""
    steps: list[Splitter] = []
    for named, group in groupby(stages, lambda s: s in _NAMED):
        run = list(group)
        steps += [_NAMED[s] for s in run] if named else [_regex_step(run)]

    def apply(text: str) -> list[str]:
        words = [text]
        for step in steps:
            words = step(words)
        return words

    def split(text: str) -> list[str]:
        if text.isascii() or METASPACE in stages or not _NEWER.search(text):
            return apply(text)
        bounds = [0, *accumulate(len(word) for word in apply(_NEWER.sub(_UNASSIGNED, text)))]
        return [text[a:b] for a, b in pairwise(bounds)]

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
    """As llama.cpp does it: what precedes a number stays with the number's first group."""
    out: list[str] = []
    for word in words:
        before = ""
        for number, run in groupby(word, _is_number):
            text = "".join(run)
            if number:
                first, *others = _in_threes(text)
                out += [before + first, *others]
            before = "" if number else text
        out += [before] if before else []
    return out


def _thousands_ascii(words: list[str]) -> list[str]:
    """Cut before each full group of three; a first, shorter group stays with what precedes it."""
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
