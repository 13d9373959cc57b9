"""The bridge from our tokenizer to llguidance's: bytes of tokens, which are control tokens, which ones end an answer.

Built once for an engine. Control tokens stand for themselves in a grammar (`<[id]>`), never for the text of their names, so a
text that only looks like one cannot be forged out of letters, nor the token slip into a string.
"""

from __future__ import annotations

from llguidance import LLTokenizer, TokenizerWrapper

from tensormill.errors import RequestError
from tensormill.tokenizer import Tokenizer
from tensormill.tokenizer.vocab import Kind


class _Bridge:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        ends = sorted(tokenizer.end_ids)
        self.eos_token_id = tokenizer.eos if tokenizer.eos is not None else ends[0]
        self.bos_token_id = tokenizer.bos
        self.tokens = [tokenizer.piece(i) for i in range(tokenizer.n_vocab)]
        odd = {Kind.CONTROL, Kind.UNKNOWN, Kind.UNUSED, Kind.UNDEFINED}
        self.special_token_ids = [i for i in range(tokenizer.n_vocab) if tokenizer.kind(i) in odd]

    def __call__(self, text: str | bytes) -> list[int]:
        """How a text that a grammar leaves no choice about is spelled: no other tokens are let through then."""
        return self._tokenizer.spelled(text if isinstance(text, bytes) else text.encode())


def vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    """llguidance's view of a vocabulary; RequestError if nothing in it can end an answer."""
    if not tokenizer.end_ids:
        raise RequestError("this model's vocabulary has no token that ends an answer: grammars cannot be used with it")
    return LLTokenizer(TokenizerWrapper(_Bridge(tokenizer)), eos_token=sorted(tokenizer.end_ids))
