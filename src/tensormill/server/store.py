"""Responses that later ones may continue: in memory, each its owner's, the least recently used forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tensormill.server.exchange import encode
from tensormill.server.request import Values


@dataclass(frozen=True, slots=True)
class Stored:
    """A response, and the messages that led to it and include it."""

    response: Values
    messages: list[Values]


class Store:
    """At most `bytes_` of responses, as JSON counts them."""

    def __init__(self, bytes_: int = 256 << 20) -> None:
        self._room = bytes_
        self._kept: OrderedDict[tuple[str, str], tuple[Stored, int]] = OrderedDict()

    def keep(self, owner: str, id: str, stored: Stored) -> None:
        """Remember a response, forgetting others if need be; one that is larger than all the room is not kept."""
        size = len(encode((stored.response, stored.messages)))
        self.forget(owner, id)
        if size > self._room + sum(s for _, s in self._kept.values()):
            return
        self._kept[owner, id] = (stored, size)
        self._room -= size
        while self._room < 0:
            self._drop(next(iter(self._kept)))

    def get(self, owner: str, id: str) -> Stored | None:
        """That owner's response of that id."""
        if (owner, id) not in self._kept:
            return None
        self._kept.move_to_end((owner, id))
        return self._kept[owner, id][0]

    def forget(self, owner: str, id: str) -> None:
        """Drop a response; nothing happens if there is none."""
        if (owner, id) in self._kept:
            self._drop((owner, id))

    def _drop(self, key: tuple[str, str]) -> None:
        self._room += self._kept.pop(key)[1]
