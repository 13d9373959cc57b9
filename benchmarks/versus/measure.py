"""Rounds: in each both programs are measured once, in an order that turns, and every number is kept with its round's.

The first round runs llama.cpp with flash attention off and on. A setting that was slower by more than a tenth is left out
then, and one that was the slower in each of two rounds is left out as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

import machine

from versus import sides
from versus.cells import Cell
from versus.commands import OFF, ON, Chosen
from versus.limits import limit
from versus.models import lent

LATE = 1.0  # as disturbed as can be


@dataclass
class Measured:
    """One cell's numbers: ours and, by setting, llama.cpp's, one a round."""

    cell: Cell
    limit: float | None = None
    ours: list[float] = field(default_factory=list)
    theirs: dict[str, list[float]] = field(default_factory=dict)
    their_limit: float | None = None  # where it is not the machine's
    pressure: list[float | None] = field(default_factory=list)


def measure(
    cells: list[Cell], chosen: Chosen, say: Callable[[str], None], settings: Sequence[str] = (), quiet: bool = False
) -> list[Measured]:
    """All rounds of cells of one run.

    `settings`: those of llama.cpp to try, where some are known to be slower; `quiet`: whether the machine was quiet just now.
    """
    with ExitStack() as stack:
        path = stack.enter_context(lent(cells[0].model))
        made = [Measured(cell, limit(path, cell, chosen.threads)) for cell in cells]
        ours = sides.ours(path, cells, chosen, stack)
        theirs = {s: sides.theirs(path, cells, chosen, s, stack) for s in settings or _settings(cells[0])}
        pressure: list[float | None] = []
        for number in range(chosen.rounds):
            both = [ours, *theirs.values()]
            if not (quiet or machine.wait_until_quiet(chosen.patience)):
                say("another process keeps the CPU busy; measuring all the same")
            pressure.append(_round(both if number % 2 else both[::-1]))
            quiet = (pressure[-1] or 0) < machine.QUIET
            for m in made:
                m.theirs |= {s: [n[m.cell.test] for n in side.numbers()] for s, side in theirs.items()}
            say(f"{cells[0].key}: round {number + 1} of {chosen.rounds}: " + ", ".join(map(_short, made)))
            theirs = {s: side for s, side in theirs.items() if s in worth_repeating(made)}
        numbers = ours.numbers()
    for m in made:
        m.ours = [n[m.cell.test] for n in numbers]
        m.pressure = [None] * chosen.rounds if m.cell.part == "busy" else pressure  # there it is meant
        say(f"{m.cell.key}: ours " + ", ".join(f"{rate:.4g}" for rate in m.ours))
        if m.cell.part == "busy":
            m.limit, m.their_limit = numbers[-1]["quiet"], theirs[ON].numbers()[-1]["quiet"]
    return made


def _round(both: Sequence[sides.Side]) -> float | None:
    """Everybody's turn, and the CPU pressure meanwhile."""
    pressure = machine.Pressure()
    for side in both:
        side.turn()
    share = pressure.share()
    return LATE if any(side.late for side in both) else share


def _short(m: Measured) -> str:
    theirs = "/".join(f"{numbers[-1]:.4g}" for numbers in m.theirs.values())
    return f"{m.cell.test} {theirs or '–'} {m.cell.unit}"


def _settings(cell: Cell) -> list[str]:
    if cell.part == "idle":
        return []
    return [ON] if cell.kv not in ("f16", "f32", "bf16") or cell.part in ("start", "busy") else [OFF, ON]


def worth_repeating(made: Sequence[Measured]) -> list[str]:
    """The settings of llama.cpp that, in some cell, are best, or nearly and not slower in each of two rounds or more."""
    kept: list[str] = []
    for m in made:
        most = max(map(len, m.theirs.values()), default=0)
        rates = {setting: numbers for setting, numbers in m.theirs.items() if len(numbers) == most}
        typical = {setting: median(numbers) for setting, numbers in rates.items()}
        best = max(typical, key=typical.__getitem__, default=None)
        for setting, numbers in rates.items():
            behind = best is not None and all(a < b for a, b in zip(numbers, rates[best], strict=True))
            worse = best is not None and typical[setting] <= 0.9 * typical[best]
            if setting not in kept and (m.cell.less or not (worse or (behind and most > 1))):
                kept.append(setting)
    return kept
