"""T5's unigram model: the segmentation of highest total score (Viterbi), after the file's character map (charsmap.py)."""

from __future__ import annotations

from tensormill.tokenizer.charsmap import CharsMap
from tensormill.tokenizer.vocab import PREFIX, Kind, Vocab
from tensormill.tokenizer.wordpiece import token_lengths
from tensormill.tokenizer.words import ESCAPED_SPACE, WordCache, word_starts

_UNKNOWN_PENALTY = 10.0


class Unigram:
    """Encodes text without special tokens."""

    def __init__(self, vocab: Vocab) -> None:
        normal = vocab.of_kind(Kind.NORMAL)
        user = vocab.of_kind(Kind.USER_DEFINED)
        scores = [0.0] * len(vocab.tokens) if vocab.scores is None else vocab.scores.tolist()
        self._lengths = token_lengths(vocab)[::-1]
        self._known = {vocab.tokens[i]: (scores[i], i) for i in [*normal, *vocab.of_kind(Kind.UNUSED)]}
        self._known |= {vocab.tokens[i]: (0.0, i) for i in user}
        self._unknown = vocab.ids["unk"]
        self._unknown_score = min((scores[i] for i in normal), default=0.0) - _UNKNOWN_PENALTY
        self._prefix = vocab.flag("add_space_prefix", False)
        self._merge_spaces = vocab.flag("remove_extra_whitespaces", False)
        self._map = CharsMap(vocab.metadata.get(PREFIX + "precompiled_charsmap"), [vocab.tokens[i] for i in user])
        self._starts = word_starts(self._known)
        self._cache = WordCache(self._word)

    def encode(self, text: str, out: list[int]) -> None:
        """Append the ids of `text` to `out`."""
        first = len(out)
        self._cache.extend(self._starts.split(self._spaced(self._map(text))), out)
        if self._unknown is not None:  # neighbouring unknowns are one, across words too
            out[first:] = [t for i, t in enumerate(out[first:]) if t != self._unknown or i == 0 or out[first + i - 1] != t]

    def _spaced(self, text: str) -> str:
        if self._merge_spaces:
            return "".join(ESCAPED_SPACE + word for word in text.split(" ") if word)
        spaced = text.replace(" ", ESCAPED_SPACE)
        start = len(spaced) - len(spaced.lstrip(ESCAPED_SPACE))
        return spaced[:start] + ESCAPED_SPACE + spaced[start:] if self._prefix and text.strip(" ") else spaced

    def _word(self, word: str) -> list[int]:
        n = len(word)
        best = [0.0] + [float("-inf")] * n
        back: list[tuple[int, int | None]] = [(0, self._unknown)] * (n + 1)
        for i in range(n):
            for length in self._lengths:
                j = i + length
                if j > n:
                    break
                entry = self._known.get(word[i:j])
                if entry is not None and best[i] + entry[0] > best[j]:
                    best[j] = best[i] + entry[0]
                    back[j] = (i, entry[1])
            if word[i] not in self._known and best[i] + self._unknown_score > best[i + 1]:
                best[i + 1] = best[i] + self._unknown_score
                back[i + 1] = (i, self._unknown)
        ids: list[int] = []
        while n:
            n, token = back[n]
            if token is not None:
                ids.append(token)
        return ids[::-1]
