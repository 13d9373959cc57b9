"""Cuts special tokens out of a text before anything else sees it: longest token first, then leftmost.

User-defined tokens always; control and unknown ones only on request, so that user text cannot forge them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensormill.tokenizer.endings import STRUCTURE
from tensormill.tokenizer.vocab import Kind, Vocab

WHITESPACE = " \t\n\v\f\r"
_PREFIX = 3  # characters; most texts hold few of these beginnings, which spares thousands of searches


@dataclass
class SpecialTokens:
    """Special tokens by falling byte length. `lstrip`, `rstrip`: ids that swallow white space before or after them."""

    tokens: list[tuple[str, int, bool]]  # text, id, only on request
    structure: frozenset[str] = frozenset()  # of the others, those that people's text may not hold either
    lstrip: set[int] = field(default_factory=set)
    rstrip: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        always = [t for t in self.tokens if not t[2]]
        mine = [t for t in always if t[0] not in self.structure]
        self._pools: dict[bool | None, list[tuple[str, int, bool]]] = {True: self.tokens, False: always, None: mine}
        self._starts = {pool: {t[0][:_PREFIX] for t in tokens} for pool, tokens in self._pools.items()}

    @property
    def controls(self) -> list[str]:
        """The texts that nobody but a template may write."""
        return [text for text, _, requested in self.tokens if requested or text in self.structure]

    def cut(self, text: str, requested: bool | None, sign: str = "") -> list[str | int]:
        """Pieces of text and token ids, in order; no piece is empty. A `sign` hides what it stands in from the first search
        and is gone in the second, which is for the user-defined tokens of people's text alone (`requested` None)."""
        if sign and sign in text:
            found: list[str | int] = []
            for piece in self.cut(text, requested):
                found += [piece] if isinstance(piece, int) else self.cut(piece.replace(sign, ""), None)
            return found
        pieces: list[str | int] = [text] if text else []
        present = {start for start in self._starts[requested] if start in text}
        if not present:
            return pieces
        for token, token_id, _ in self._pools[requested]:
            if token[:_PREFIX] in present and token in text:
                pieces = list(self._cut_one(pieces, token, token_id))
        return pieces

    def _cut_one(self, pieces: list[str | int], token: str, token_id: int) -> Iterable[str | int]:
        for piece in pieces:
            if isinstance(piece, int) or token not in piece:
                yield piece
                continue
            at = 0
            while (found := piece.find(token, at)) >= 0:
                before = piece[at:found]
                if token_id in self.lstrip:
                    before = before.rstrip(WHITESPACE)
                if before:
                    yield before
                yield token_id
                at = found + len(token)
                while token_id in self.rstrip and piece[at : at + 1] and piece[at] in WHITESPACE:
                    at += 1
            if at < len(piece):
                yield piece[at:]


def special_tokens(vocab: Vocab, *, model_name: str, pre: str, architecture: str) -> SpecialTokens:
    """The special tokens of a settled vocabulary, with the stripping that files fail to state (known by model name)."""
    ids = vocab.of_kind(Kind.CONTROL, Kind.USER_DEFINED, Kind.UNKNOWN)
    rows = [(vocab.tokens[i], i, vocab.kinds[i] != Kind.USER_DEFINED) for i in ids]
    rows.sort(key=lambda row: -len(row[0].encode("utf-8", "surrogatepass")))
    special = SpecialTokens(rows, STRUCTURE)
    name = model_name.lower()
    if any(n in pre for n in ("jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert")) or any(
        n in architecture for n in ("nomic-bert-moe", "jina-bert-v3")
    ):
        special.lstrip = {vocab.index[t] for t in ("<mask>",) if t in vocab.index}
    elif "phi-3" in name or "phi3" in name:
        plain = {vocab.index[t] for t in ("<unk>", "<s>", "<|endoftext|>") if t in vocab.index}
        special.rstrip = (set(ids) | {vocab.index[t] for t in ("</s>",) if t in vocab.index}) - plain
    elif "modern-bert" in name:
        special.lstrip = {vocab.index[t] for t in ("[MASK]",) if t in vocab.index}
    return special
