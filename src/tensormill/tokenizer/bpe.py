"""Byte-pair encoding by ranked merges: GPT-2's byte alphabet, or raw UTF-8 with U+2581 for spaces (gemma4 and kin)."""

from __future__ import annotations

from tensormill.errors import TokenizerError
from tensormill.tokenizer.merge import merge
from tensormill.tokenizer.pre import Family
from tensormill.tokenizer.split import splitter
from tensormill.tokenizer.vocab import PREFIX, Vocab, strings
from tensormill.tokenizer.words import ESCAPED_SPACE, WHITESPACE, WordCache, word_starts


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each byte: itself where printable Latin-1, else U+0100 and on, in order."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(b if b in plain else next(others)) for b in range(256)]


BYTE_ALPHABET = _byte_alphabet()
BYTE_OF = {c: b for b, c in enumerate(BYTE_ALPHABET)}
_TO_ALPHABET = dict(enumerate(BYTE_ALPHABET))


class BPE:
    """Encodes text without special tokens by a family's rules."""

    def __init__(self, vocab: Vocab, rules: Family, *, merges_required: bool = True) -> None:
        self._index = vocab.index
        self._rules = rules
        self._ranks = _ranks(vocab, merges_required)
        self._split = splitter(rules.stages)
        self._starts = word_starts(vocab.tokens) if rules.spaces_escaped else None
        self._bytes = vocab.byte_tokens()
        self._cache = WordCache(self._word)

    def encode(self, text: str, out: list[int]) -> None:
        """Append the ids of `text` to `out`."""
        if self._starts is None:
            self._cache.extend(self._split(text), out)
            return
        for line in self._split(text.replace(" ", ESCAPED_SPACE)):
            self._cache.extend(self._starts.split(line), out)

    def _cost(self, left: str, right: str) -> int | None:
        return self._ranks.get(f"{left} {right}")

    def _word(self, word: str) -> list[int]:
        index, rules = self._index, self._rules
        if rules.byte_level:
            word = word.encode().decode("latin-1").translate(_TO_ALPHABET)
        if (rules.ignore_merges or (rules.whole_newlines and not word.strip("\n"))) and word in index:
            return [index[word]]
        ids: list[int] = []
        for symbol in merge(word, self._cost):
            token = index.get(symbol)
            if token is not None:
                ids.append(token)
            elif not rules.byte_level:
                ids += [t for b in symbol.encode() if (t := self._bytes[b]) is not None]
        return ids


class UnspacedBPE:
    """The kind `whitespace`: white space only parts words and is dropped; letters may be lower-cased, one by one."""

    def __init__(self, bpe: BPE, lowercase: bool) -> None:
        self._bpe = bpe
        self._lowercase = lowercase

    def encode(self, text: str, out: list[int]) -> None:
        """Append the ids of `text` to `out`."""
        for word in "".join(" " if c in WHITESPACE else c for c in text).split(" "):
            self._bpe.encode("".join(c.lower()[0] for c in word) if self._lowercase else word, out)


def _ranks(vocab: Vocab, required: bool) -> dict[str, int]:
    """Rank of each "left right", the first of equals; TokenizerError for a merge into something that is no token."""
    if not required and PREFIX + "merges" not in vocab.metadata:
        return {}
    merges = strings(vocab.metadata, "merges")
    if not set(_unions(merges)) <= vocab.index.keys():
        wrong = next(m for m, union in zip(merges, _unions(merges), strict=True) if union not in vocab.index)
        raise TokenizerError(f"{PREFIX}merges has {wrong[:64]!r}, which does not join into a token of the vocabulary")
    return dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))


def _unions(merges: list[str]) -> list[str]:
    """What each "left right" makes; the usual case in a few calls, since a vocabulary has up to 500,000 of them."""
    text = "\0".join(merges)
    if text.count(" ") == len(merges) and text.count("\0") == len(merges) - 1:
        return text.replace(" ", "").split("\0")
    cuts = [m.find(" ", 1) for m in merges]
    return [m[:cut] + m[cut + 1 :] if cut > 0 else "" for m, cut in zip(merges, cuts, strict=True)]
