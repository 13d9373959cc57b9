"""A process that is measured in turns: it runs until it says that its next round begins, and is stopped there until its turn.

Two programs alternate this way though each is started once, and loads its model and fills a deep cache once. The stop comes
with the line that begins a round, before what is not timed of it (a warm-up, at least). Where the timed part is found to have
begun all the same, the round is told to be `late`. However a comparison ends, its processes, stopped or not, end with it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from versus.processes import failure


@dataclass(frozen=True)
class Marks:
    """What a program says on standard error when a test of a round begins, and its timed part; how many tests a round has."""

    begins: re.Pattern[str]
    timed: re.Pattern[str]
    tests: int = 1


class Turns:
    """A process and its turns, each of one round; a context manager that kills what is left of it."""

    def __init__(self, command: Sequence[str], marks: Marks, rounds: int) -> None:
        self.command = command
        self.late = False  # whether this round's timed part may have had a stop within
        self._marks, self._rounds, self._done, self._begun = marks, rounds, 0, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._out = tempfile.TemporaryFile()  # noqa: SIM115  (closed by __exit__)
        self._unread = b""
        self._said: list[str] = []

    def turn(self) -> None:
        """Let it run its next round, and see it stopped or, after the last, ended; SystemExit if it ended before, or failed."""
        self.late = self._ran_on()
        process = self._go_on()
        self._done += 1
        while line := self._line():
            self._said.append(line)
            self._begun += bool(self._marks.begins.search(line))
            if self._begun > self._done * self._marks.tests:
                return self._stop(process)
        if process.wait() or self._done < self._rounds:
            when = f"in round {self._done} of {self._rounds} "
            raise failure(self.command, process.returncode, "".join(self._said), when)
        return None

    @property
    def pid(self) -> int:
        """Of its process, once it had a turn."""
        assert self._process is not None
        return self._process.pid

    def out(self) -> str:
        """What it has printed so far."""
        size = os.fstat(self._out.fileno()).st_size
        return os.pread(self._out.fileno(), size, 0).decode()  # the process goes on writing where it was

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # ends a stopped process, too
            self._process.wait()
            self._error.close()
        self._out.close()

    def _go_on(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(self.command, bufsize=0, stdout=self._out, stderr=subprocess.PIPE)
            assert self._process.stderr is not None
            self._error = self._process.stderr
        else:
            self._process.send_signal(signal.SIGCONT)
        return self._process

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        os.kill(process.pid, signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)  # stopped, not merely told to
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)

    def _ran_on(self) -> bool:
        """Whether a timed part has begun before the stop, or since (somebody else may have let the process go on)."""
        while self._process is not None and select.select([self._error], [], [], 0)[0]:
            part = os.read(self._error.fileno(), 1 << 16)
            if not part:
                break
            self._unread += part
        return bool(self._marks.timed.search(self._unread.decode(errors="replace")))

    def _line(self) -> str:
        """The next line that it says; empty at its end."""
        while b"\n" not in self._unread:
            part = os.read(self._error.fileno(), 1 << 16)
            if not part:
                break
            self._unread += part
        line, newline, self._unread = self._unread.partition(b"\n")
        return (line + newline).decode(errors="replace")
