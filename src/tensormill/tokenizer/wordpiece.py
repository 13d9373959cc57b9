"""BERT's WordPiece: words of normalised text, each cut greedily into its longest tokens, or unknown as a whole.

GGUF spells word starts with U+2581 and continuations bare (no "##").
"""

from __future__ import annotations

import unicodedata

from tensormill.errors import TokenizerError
from tensormill.tokenizer.vocab import Kind, Vocab
from tensormill.tokenizer.words import ESCAPED_SPACE, WHITESPACE, WordCache

LONGEST_TOKEN = 256
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # as in the original: 0x2B820 was meant
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def token_lengths(vocab: Vocab) -> list[int]:
    """Lengths that tokens have, in characters, longest first. Special tokens aside, none may pass LONGEST_TOKEN."""
    normal = vocab.of_kind(Kind.NORMAL)
    if any(len(vocab.tokens[i]) > LONGEST_TOKEN for i in normal):
        raise TokenizerError(f"the vocabulary has a normal token of over {LONGEST_TOKEN} characters")
    return sorted({n for t in vocab.tokens if (n := len(t)) <= LONGEST_TOKEN}, reverse=True)


class WordPiece:
    """Encodes text without special tokens."""

    def __init__(self, vocab: Vocab) -> None:
        self._index = vocab.index
        self._unknown = vocab.ids["unk"]
        self._lengths = token_lengths(vocab)
        self._lower = vocab.flag("normalizer.lowercase", True)
        self._strip_accents = vocab.flag("normalizer.strip_accents", self._lower)
        self._cache = WordCache(self._word)

    def encode(self, text: str, out: list[int]) -> None:
        """Append the ids of `text` to `out`."""
        self._cache.extend(self._words(text), out)

    def _words(self, text: str) -> list[str]:
        spaced: list[str] = []
        for char in text:
            c = unicodedata.normalize("NFD", char)[0] if self._strip_accents else char
            category = unicodedata.category(c)
            if c in WHITESPACE:
                spaced.append(" ")
            elif c in "\0\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):
                continue
            elif not (self._strip_accents and category[0] == "M"):
                alone = category[0] == "P" or (c < "\x7f" and category[0] == "S") or _is_chinese(ord(c))
                kept = c.lower()[0] if self._lower else c
                spaced.append(f" {kept} " if alone else kept)
        return [w for w in "".join(spaced).split(" ") if w]

    def _word(self, word: str) -> list[int]:
        rest = ESCAPED_SPACE + word
        ids: list[int] = []
        at = 0
        while at < len(rest):
            found = next((n for n in self._lengths if rest[at : at + n] in self._index and at + n <= len(rest)), 0)
            if not found:
                return [] if self._unknown is None else [self._unknown]
            ids.append(self._index[rest[at : at + found]])
            at += found
        return ids


def _is_chinese(code: int) -> bool:
    return any(a <= code <= b for a, b in _CHINESE)
