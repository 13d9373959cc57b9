"""Reference: one step as ops see it: its sequences one by one, and which token rows a symbolic axis stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensormill.errors import ProgramError
from tensormill.program.backend import Limits
from tensormill.program.step import Ints, Step


@dataclass(frozen=True, slots=True)
class Sequence:
    """One sequence of a step: its token rows, and the fields of OPS.md §1 that are its own."""

    rows: slice
    index: Ints  # [n]
    until: Ints  # [n]
    past: int
    sure: int
    slot: int
    base: int
    pages: Mapping[int, Ints]  # lifetime → page of each P tokens

    def among(self, wanted: Ints) -> tuple[Ints, Ints]:
        """Which of the wanted token rows are this sequence's, and their offsets in it."""
        at = np.flatnonzero((wanted >= self.rows.start) & (wanted < self.rows.stop))
        return at.astype(np.int32), wanted[at] - self.rows.start


class Frame:
    """A step, cut into sequences. Token rows after the last sequence are padding and belong to none."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.sequences = [self._sequence(s) for s in range(len(step.past))]

    def rows(self, symbol: str) -> tuple[Ints, int]:
        """The token rows that `T` or `C<r>` stands for, and the ratio r (1 for T)."""
        if symbol == "T":
            return np.arange(len(self.step.tokens), dtype=np.int32), 1
        return self.step.done[int(symbol[1:])], int(symbol[1:])

    def _sequence(self, s: int) -> Sequence:
        step = self.step
        rows = slice(int(step.seq_start[s]), int(step.seq_start[s + 1]))
        return Sequence(
            rows, step.index[rows], step.until[rows], int(step.past[s]), int(step.sure[s]), int(step.slot[s]),
            int(step.base[s]), {w: table[s] for w, table in step.pages.items()},
        )  # fmt: skip


def check(step: Step, limits: Limits, *, recurrent: bool) -> None:
    """Refuse a step that breaks what the scheduler owes (OPS.md §1): its size, its drafts, the place of its states."""
    for what, found, most in (
        ("tokens", len(step.tokens), limits.tokens),
        ("sequences", len(step.past), limits.sequences),
        ("logit rows", len(step.out_rows), limits.rows),
        ("media rows", len(step.media_rows), limits.media),
    ):
        if found > most:
            raise ProgramError(f"the step has {found} {what}, but the limits allow {most}")
    drafts = np.diff(step.seq_start) - step.sure
    if recurrent and (drafts.max() > limits.drafts or (step.past - step.base).max() > limits.drafts):
        raise ProgramError(f"a sequence has more unsure tokens than the {limits.drafts} drafts that rings are made for")
    if (drafts < 0).any() or (step.base > step.past).any():
        raise ProgramError("sure tokens must lie in the step, and states at or before past")
