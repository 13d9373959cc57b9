"""Results on disk: one JSON file into which every run puts its cells, so that the table can be gathered in pieces.

A cell measured again replaces what was there. A file holds results of one machine, one number of threads and one llama.cpp.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from versus.cells import Cell, Goal
from versus.measure import Measured

DISTURBED = 0.10  # CPU pressure during a round above which it is suspect
WHERE = ("cpu", "cores", "features", "threads", "llama.cpp", "compiler")  # what must be equal within a file


@dataclass
class Row:
    """A cell's result as it is kept."""

    key: str
    unit: str
    ours: list[float]
    theirs: dict[str, list[float]]
    limit: float | None = None
    their_limit: float | None = None
    disturbed: int = 0  # rounds during which another process was busy
    date: str = ""

    @property
    def less(self) -> bool:
        """Whether a smaller number is better."""
        return self.unit != "tok/s"

    @property
    def setting(self) -> str | None:
        """The setting with which llama.cpp is better, of those that ran most often."""
        full = {s: median(self.theirs[s]) for s in self.repeated}
        if not full:
            return None
        return min(full, key=full.__getitem__) if self.less else max(full, key=full.__getitem__)

    @property
    def repeated(self) -> list[str]:
        """The settings that ran most often: those that were not found to be the slower."""
        most = max(map(len, self.theirs.values()), default=0)
        return [s for s, numbers in self.theirs.items() if len(numbers) == most]

    @property
    def ratios(self) -> list[float]:
        """How many times better ours is, round by round."""
        if self.setting is None:
            return []
        pairs = zip(self.ours, self.theirs[self.setting], strict=False)
        return [theirs / ours if self.less else ours / theirs for ours, theirs in pairs]

    @property
    def share(self) -> float | None:
        """Ours of the limit (for what should be small: the limit of ours)."""
        return self._share(self.ours, self.limit)

    @property
    def their_share(self) -> float | None:
        """llama.cpp's of the limit."""
        numbers = self.theirs[self.setting] if self.setting else []
        return self._share(numbers, self.their_limit or self.limit)

    def _share(self, numbers: list[float], limit: float | None) -> float | None:
        if not limit or not numbers:
            return None
        return limit / median(numbers) if self.less else median(numbers) / limit

    def meets(self, goal: Goal, others: dict[str, Row]) -> bool | None:
        """Whether a goal is met; None if there is none, or nothing to judge by."""
        verdicts: list[bool | None] = []
        if goal.ratio is not None:
            verdicts.append(median(self.ratios) >= goal.ratio if self.ratios else None)
        if goal.share is not None:
            verdicts.append(self.share >= goal.share if self.share is not None else None)
        if goal.most is not None:
            verdicts.append(median(self.ours) <= goal.most)
        if goal.beats is not None:
            other = others.get(goal.beats)
            verdicts.append(median(self.ours) > median(other.ours) if other else None)
        if False in verdicts:
            return False
        return True if verdicts and None not in verdicts else None


@dataclass
class Results:
    """All rows of a file, and where they were measured."""

    where: dict[str, Any]
    rows: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, where: dict[str, Any] | None = None) -> Results:
        """From a file, or empty; SystemExit if it holds results of another machine than `where`."""
        if not path.exists():
            return cls(where or {})
        try:
            kept = json.loads(path.read_text())
        except ValueError:
            raise SystemExit(f"{path} holds no results: it is no JSON") from None
        differing = [k for k in WHERE if where and kept["where"].get(k) != where.get(k)]
        if differing:
            raise SystemExit(f"{path} holds results of another {', '.join(differing)}; choose another file with --results")
        return cls({**kept["where"], **(where or {})}, {key: Row(key, **row) for key, row in kept["cells"].items()})

    def put(self, measured: Iterable[Measured], date: str) -> None:
        """Add cells, in the place of older ones."""
        for m in measured:
            disturbed = sum((share or 0) > DISTURBED for share in m.pressure)
            key, unit = m.cell.key, m.cell.unit
            self.rows[key] = Row(key, unit, m.ours, m.theirs, m.limit, m.their_limit, disturbed, date)

    def write(self, path: Path) -> None:
        """Into a file, whole or not at all."""
        cells = {key: {k: v for k, v in vars(row).items() if k != "key"} for key, row in sorted(self.rows.items())}
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"where": self.where, "cells": cells}, indent=1) + "\n")
        partial.replace(path)

    def of(self, cell: Cell) -> Row | None:
        """A cell's row, if it was measured."""
        return self.rows.get(cell.key)
