"""What a proposer is: it guesses for all decoding sequences of a step at once. Guesses never change what is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Wish:
    """A sequence that would like guesses: at most `most` tokens behind `tokens`.

    `pages`: its page table of the whole lifetime, with room for the guesses; `slot`: where its states are.
    """

    id: str
    tokens: Sequence[int]
    most: int
    pages: Sequence[int] = ()
    slot: int = 0


class Proposer(Protocol):
    """Guesses what comes next."""

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """For each wish, at most `most` tokens that may follow (none is fine)."""

    def forget(self, id: str) -> None:
        """A sequence has ended."""

    @property
    def bytes(self) -> int:
        """Memory that it has taken."""


class FirstOf:
    """Asks several proposers in turn, each for those sequences that the ones before had no guess for."""

    def __init__(self, proposers: Sequence[Proposer]) -> None:
        self._proposers = proposers

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """For each wish, the guesses of the first proposer that has any."""
        guesses: list[list[int]] = [[] for _ in wishes]
        for proposer in self._proposers:
            without = [i for i, guess in enumerate(guesses) if not guess]
            if without:
                for i, guess in zip(without, proposer.propose([wishes[i] for i in without]), strict=True):
                    guesses[i] = guess
        return guesses

    def forget(self, id: str) -> None:
        """A sequence has ended."""
        for proposer in self._proposers:
            proposer.forget(id)

    @property
    def bytes(self) -> int:
        """Memory of all of them."""
        return sum(p.bytes for p in self._proposers)
