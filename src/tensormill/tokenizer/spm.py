"""SentencePiece byte-pair encoding: join the pair whose union is the token of highest score; bytes where no token fits."""

from __future__ import annotations

from tensormill.tokenizer.merge import merge
from tensormill.tokenizer.vocab import Vocab
from tensormill.tokenizer.words import ESCAPED_SPACE, WordCache, word_starts


class SPM:
    """Encodes text without special tokens; the space prefix is the caller's."""

    def __init__(self, vocab: Vocab) -> None:
        self._index = vocab.index
        scores = [0.0] * len(vocab.tokens) if vocab.scores is None else (-vocab.scores).tolist()
        self._costs = dict(zip(vocab.tokens, scores, strict=True))
        self._starts = word_starts(vocab.tokens)
        self._unknown = vocab.ids["unk"]
        self._bytes = [
            token if token is not None else vocab.index.get(chr(b)) if b < 128 else None
            for b, token in enumerate(vocab.byte_tokens())
        ]
        self._cache = WordCache(self._word)

    def encode(self, text: str, out: list[int]) -> None:
        """Append the ids of `text` to `out`."""
        self._cache.extend(self._starts.split(text.replace(" ", ESCAPED_SPACE)), out)

    def _cost(self, left: str, right: str) -> float | None:
        return self._costs.get(left + right)

    def _word(self, word: str) -> list[int]:
        ids: list[int] = []
        for symbol in merge(word, self._cost):
            token = self._index.get(symbol)
            if token is not None:
                ids.append(token)
                continue
            for b in symbol.encode():
                byte = self._bytes[b]
                if byte is None:
                    byte = self._unknown
                if byte is not None:
                    ids.append(byte)
        return ids
