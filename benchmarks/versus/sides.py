"""One of the two programs in a comparison: it takes a turn in each round, and gives its numbers round by round.

Most cells are measured by one process that is stopped between its turns; where the start of a process, a busy or an idle
machine is measured, each round has processes of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

from versus.cells import Cell
from versus.commands import (
    Chosen,
    Numbers,
    our_command,
    our_marks,
    our_numbers,
    their_command,
    their_marks,
    their_numbers,
)
from versus.processes import busy_process, finish
from versus.turns import Turns

IDLE = """
import sys, time
from tensormill.engine import Engine
engine = Engine.load(sys.argv[1])
engine.session().feed([1, 2, 3])
before = time.process_time()
time.sleep(2)
print((time.process_time() - before) / 2)
"""
Reader = Callable[[str, Sequence[Cell]], list[Numbers]]


class Side(Protocol):
    """What takes turns."""

    @property
    def late(self) -> bool:
        """Whether the last turn is not to be trusted."""

    def turn(self) -> None:
        """Measure one round; SystemExit if the program fails."""

    def numbers(self) -> list[Numbers]:
        """What is known so far; after the last round all rounds."""


class InTurns:
    """A process that is stopped between its rounds."""

    def __init__(self, turns: Turns, cells: Sequence[Cell], read: Reader) -> None:
        self._turns, self._cells, self._read = turns, cells, read

    @property
    def late(self) -> bool:
        """Whether it was stopped too late for its last turn."""
        return self._turns.late

    def turn(self) -> None:
        """One round."""
        self._turns.turn()

    def numbers(self) -> list[Numbers]:
        """As far as they are printed."""
        out = self._turns.out()
        return self._read(out, self._cells) if out.strip() else []


class Afresh:
    """New processes each round."""

    late = False

    def __init__(self, measure: Callable[[], Numbers]) -> None:
        self._measure = measure
        self._numbers: list[Numbers] = []

    def turn(self) -> None:
        """One round."""
        self._numbers.append(self._measure())

    def numbers(self) -> list[Numbers]:
        """One a round."""
        return self._numbers


def ours(path: Path, cells: Sequence[Cell], chosen: Chosen, stack: ExitStack) -> Side:
    """Our side of some cells; its processes end with `stack`."""
    if cells[0].part == "idle":
        return Afresh(lambda: {cells[0].test: float(finish([sys.executable, "-c", IDLE, str(path)]).out)})
    if afresh(cells[0]):
        return Afresh(partial(_one, our_command(path, cells, chosen), cells, our_numbers))
    turns = Turns(our_command(path, cells, chosen, chosen.rounds), our_marks(cells), chosen.rounds)
    return InTurns(stack.enter_context(turns), cells, our_numbers)


def theirs(path: Path, cells: Sequence[Cell], chosen: Chosen, setting: str, stack: ExitStack) -> Side:
    """llama.cpp's side with one setting; its processes end with `stack`."""
    if afresh(cells[0]):
        return Afresh(partial(_one, their_command(path, cells, chosen, setting), cells, their_numbers))
    turns = Turns(their_command(path, cells, chosen, setting, chosen.rounds), their_marks(cells), chosen.rounds)
    return InTurns(stack.enter_context(turns), cells, their_numbers)


def afresh(cell: Cell) -> bool:
    """Whether each round of a cell has processes of its own."""
    return cell.part in ("start", "busy", "idle")


def _one(command: list[str], cells: Sequence[Cell], read: Reader) -> Numbers:
    """The numbers of one round of a program that ends with it."""
    done = finish(command)
    if cells[0].part == "start":
        return {"first token": done.seconds, "peak memory": done.megabytes}
    (numbers,) = read(done.out, cells)
    if cells[0].part != "busy":
        return numbers
    with busy_process():
        (busy,) = read(finish(command).out, cells)
    return {**busy, "quiet": numbers[cells[0].test]}
