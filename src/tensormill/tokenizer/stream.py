"""Token by token to text without ever splitting a character: bytes wait until they complete one or cannot any more."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class StreamDecoder:
    """Feed ids, get text. Bytes that can never become a character give U+FFFD, as early as that is certain."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; "" while a character is unfinished."""
        return self._decoder.decode(self._piece(token))

    @property
    def pending(self) -> bool:
        """Whether a character is unfinished."""
        return bool(self._decoder.getstate()[0])

    def finish(self) -> str:
        """What is left: U+FFFD for an unfinished character, else "". The decoder can be used again."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
