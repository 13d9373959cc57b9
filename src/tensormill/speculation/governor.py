"""Decides for each request how many tokens to guess, and parks guessing where it loses time; it is tried again later.

A guess costs a row in the step and the proposer's time, and saves, if it comes true, a step's share of one sequence. Both
costs are measured as steps run; how often guesses come true is counted for each request. Speed is all that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_FADE = 0.97  # weight of the past, a step
_REST, _LONGEST_REST = 16, 512  # turns a request is parked for, at first and at most
_HOPE = (3.0, 4.0)  # a new request counts as having had 3 of 4 guesses come true


@dataclass(slots=True)
class _Trial:
    """How guessing went for one request."""

    true: float = _HOPE[0]
    tried: float = _HOPE[1]
    parked: int = 0  # turns left
    rest: int = _REST
    asked: bool = False  # proposers have seen it


class Governor:
    """`most` before a turn; `stepped`, `proposed` and `learned` after it."""

    def __init__(self) -> None:
        self._trials: dict[str, _Trial] = {}
        self._n = self._x = self._y = self._xx = self._xy = 0.0  # fading sums over steps: rows, seconds
        self._proposed = self._guesses = 0.0  # seconds of proposers, tokens they gave

    def most(self, id: str, limit: int, sequences: int) -> int:
        """How many tokens to guess for a request, while so many sequences decode; 0 while it is parked."""
        trial = self._trials.setdefault(id, _Trial())
        if trial.parked:
            trial.parked -= 1
            return 0
        cost, saved = self._costs(sequences)
        chance, count = trial.true / trial.tried, 0
        likely = chance
        while count < limit and likely * saved >= cost:
            count, likely = count + 1, likely * chance
        if not count and limit > 0:
            trial.parked, trial.rest = trial.rest, min(2 * trial.rest, _LONGEST_REST)
            trial.true, trial.tried = _HOPE
        return count

    def learned(self, id: str, drafted: int, accepted: int) -> None:
        """So many guesses of a request were checked, and so many came true."""
        if not drafted:
            return
        trial = self._trials.setdefault(id, _Trial())
        trial.true = trial.true * 0.9 + accepted
        trial.tried = trial.tried * 0.9 + accepted + (accepted < drafted)
        if accepted == drafted:
            trial.rest = _REST

    def stepped(self, rows: int, seconds: float) -> None:
        """A step of decoding sequences only took so long."""
        self._n, self._x, self._y = self._n * _FADE + 1, self._x * _FADE + rows, self._y * _FADE + seconds
        self._xx, self._xy = self._xx * _FADE + rows * rows, self._xy * _FADE + rows * seconds

    def proposed(self, seconds: float, guesses: int, ids: Iterable[str]) -> None:
        """Proposers took so long for so many guesses; a request's first time does not count, nor does reading without one."""
        first = False
        for id in ids:
            trial = self._trials.setdefault(id, _Trial())
            first, trial.asked = first or not trial.asked, True
        if guesses and not first:
            self._proposed = self._proposed * _FADE + seconds
            self._guesses = self._guesses * _FADE + guesses

    def forget(self, id: str) -> None:
        """A request has ended."""
        self._trials.pop(id, None)

    def _costs(self, sequences: int) -> tuple[float, float]:
        """Seconds that one guess costs, and that one which comes true saves."""
        if not self._n:
            return 0.0, 1.0  # nothing measured: guess
        rows, seconds = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - rows * rows
        slope = (self._xy / self._n - rows * seconds) / spread if spread > 1e-9 else 0.1 * seconds / max(rows, 1)
        slope = min(max(slope, 0.0), seconds / max(rows, 1))
        step = seconds + slope * (sequences - rows)  # without any guesses
        return slope + self._proposed / max(self._guesses, 1.0), step / max(sequences, 1)
