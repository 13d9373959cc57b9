"""Processes that take turns: real ones, each a few lines of Python, which are stopped and let go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from versus.turns import Marks, Turns

MARKS = Marks(re.compile("begins$", re.M), re.compile("timed$", re.M))
PROGRAM = """
import sys, time
name, rounds = sys.argv[1], int(sys.argv[2])
for number in range(rounds):
    print(name, number, "begins", file=sys.stderr, flush=True)
    time.sleep(0.2)
    print(name, number, "timed", file=sys.stderr, flush=True)
    with open(sys.argv[3], "a") as log:
        log.write(f"{name}{number} ")
    print(number, flush=True)
"""
HASTY = """
import sys, time
for number in range(3):
    sys.stderr.write("begins\\ntimed\\n")
    sys.stderr.flush()
    time.sleep(0.2)
"""
COMPARISON = """
import re, sys, time
from versus.turns import Marks, Turns
marks = Marks(re.compile("begins"), re.compile("timed"))
endless = "import sys, time\\nwhile True: print('begins', file=sys.stderr); time.sleep(0.1)"
with Turns([sys.executable, "-c", endless], marks, 9) as turns:
    turns.turn()
    print(turns.pid, flush=True)
    time.sleep(60)
"""


def program(name: str, log: Path, rounds: int = 3) -> list[str]:
    return [sys.executable, "-c", PROGRAM, name, str(rounds), str(log)]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_processes_alternate_and_a_stopped_one_stands_still(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Turns(program("a", log), MARKS, 3) as a, Turns(program("b", log), MARKS, 3) as b:
        a.turn()
        assert log.read_text() == "a0 "
        b.turn()
        time.sleep(0.5)  # longer than a round of either
        assert log.read_text() == "a0 b0 "
        assert (a.out(), b.out()) == ("0\n", "0\n")
        for side in (b, a, a, b):
            side.turn()
        assert log.read_text() == "a0 b0 b1 a1 a2 b2 "
        assert a.out() == "0\n1\n2\n"
        assert not (a.late or b.late)


def test_a_round_may_have_several_tests(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Turns(program("a", log, 4), Marks(MARKS.test, MARKS.timed, tests=2), 2) as a:
        a.turn()
        assert log.read_text() == "a0 a1 "
        a.turn()
        assert log.read_text() == "a0 a1 a2 a3 "


def test_what_is_printed_may_end_a_round(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Turns(program("a", log), Marks(re.compile(r"^\d"), MARKS.timed, output=True), 3) as a:
        a.turn()
        assert (log.read_text(), a.out()) == ("a0 ", "0\n")
        a.turn()
        a.turn()
        assert (log.read_text(), a.out()) == ("a0 a1 a2 ", "0\n1\n2\n")
    with Turns(
        [sys.executable, "-c", "import sys; print(1); sys.exit('why')"], Marks(re.compile("1"), MARKS.timed, output=True), 2
    ) as a:
        a.turn()
        with pytest.raises(SystemExit, match=r"in round 2 of 2 with exit code 1:\nwhy"):
            a.turn()


def test_a_stop_within_a_timed_part_is_noticed() -> None:
    with Turns([sys.executable, "-c", HASTY], MARKS, 3) as hasty:
        hasty.turn()
        assert not hasty.late
        hasty.turn()
        assert hasty.late


def test_one_that_somebody_else_lets_go_on_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Turns(program("a", log), MARKS, 3) as a:
        a.turn()
        os.kill(a.pid, signal.SIGCONT)
        while log.read_text() == "a0 ":
            time.sleep(0.01)
        a.turn()
        assert a.late


def test_one_that_dies_while_it_is_stopped_is_told_of(tmp_path: Path) -> None:
    with Turns(program("a", tmp_path / "log"), MARKS, 3) as a:
        a.turn()
        os.kill(a.pid, signal.SIGKILL)
        with pytest.raises(SystemExit, match=r"ended in round 2 of 3 with SIGKILL:\na 0 begins\na 0 timed"):
            a.turn()


def test_one_that_ends_too_early_or_fails_is_told_of(tmp_path: Path) -> None:
    with Turns(program("a", tmp_path / "log", 2), MARKS, 3) as a:
        a.turn()
        with pytest.raises(SystemExit, match="ended in round 2 of 3 with exit code 0"):
            a.turn()
    failing = [sys.executable, "-c", "import sys; print('begins', file=sys.stderr); sys.exit('why')"]
    with Turns(failing, MARKS, 1) as a, pytest.raises(SystemExit, match=r"in round 1 of 1 with exit code 1:\nbegins\nwhy"):
        a.turn()


def test_nothing_stopped_is_left_behind(tmp_path: Path) -> None:
    with suppress(ZeroDivisionError), Turns(program("a", tmp_path / "log"), MARKS, 3) as a:
        a.turn()
        assert alive(a.pid)
        a.late = 1 // 0
    assert not alive(a.pid)
    environment = {**os.environ, "PYTHONPATH": sys.path[0]}
    command = [sys.executable, "-c", COMPARISON]
    comparison = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert comparison.stdout is not None
    stopped = int(comparison.stdout.readline())
    assert alive(stopped)
    comparison.send_signal(signal.SIGINT)  # Ctrl-C
    comparison.wait()
    comparison.stdout.close()
    assert not alive(stopped)
