"""What was made of grammars, for requests that repeat one: by digest, and no more than a number of characters of them."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """The least recently used is forgotten first; thread-safe. `room`: characters that may be kept, `most` grammars."""

    def __init__(self, room: int, most: int) -> None:
        self._room, self._most = room, most
        self._kept: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, kind: str, text: str) -> T | None:
        """What was kept of a grammar."""
        digest = _digest(kind, text)
        with self._lock:
            if digest not in self._kept:
                return None
            self._kept.move_to_end(digest)
            return self._kept[digest][0]

    def keep(self, kind: str, text: str, made: T, size: int) -> None:
        """Remember what was made of a grammar, as long as there is room for its `size`."""
        digest = _digest(kind, text)
        with self._lock:
            self._room += self._kept.pop(digest, (None, 0))[1]
            self._kept[digest] = made, size
            self._room -= size
            while self._room < 0 or len(self._kept) > self._most:
                self._room += self._kept.popitem(last=False)[1][1]


def _digest(kind: str, text: str) -> bytes:
    return sha256(f"{kind}\0{text}".encode("utf-8", "surrogatepass")).digest()
