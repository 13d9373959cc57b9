"""A process that is measured in turns: it runs until it says that its next round begins, and is stopped there until its turn.

Two programs alternate this way though each is started once, and loads its model and fills a deep cache once. The stop comes
with the line that begins a round or ends the one before, before what is not timed of it (a warm-up, at least). Where the timed
part is found to have begun all the same, the round is told to be `late`. However a comparison ends, its processes, stopped or
not, end with it.
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
    """Lines of a program from which its rounds are told: on standard error or, from one that only gives results, on output."""

    test: re.Pattern[str]  # a test begins or, on output, has ended
    timed: re.Pattern[str]  # its timed part begins
    tests: int = 1  # of each round
    output: bool = False


class Turns:
    """A process and its turns, each of one round; a context manager that kills what is left of it."""

    def __init__(self, command: Sequence[str], marks: Marks, rounds: int) -> None:
        self.command = command
        self.late = False  # whether this round's timed part may have had a stop within
        self._marks, self._rounds, self._done, self._tests = marks, rounds, 0, 0
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = tempfile.TemporaryFile()  # noqa: SIM115  (closed by __exit__; what it says elsewhere)
        self._unread = b""
        self._said: list[str] = []

    def turn(self) -> None:
        """Let it run its next round, and see it stopped or, after the last, ended; SystemExit if it ended before, or failed."""
        self.late = self._ran_on()
        process = self._go_on()
        self._done += 1
        while line := self._line():
            self._said.append(line)
            self._tests += bool(self._marks.test.search(line))
            if self._done < self._rounds and self._tests == self._done * self._marks.tests + (not self._marks.output):
                return self._stop(process)
        if process.wait() or self._done < self._rounds:
            said = self._elsewhere() if self._marks.output else "".join(self._said)
            raise failure(self.command, process.returncode, said, f"in round {self._done} of {self._rounds} ")
        return None

    @property
    def pid(self) -> int:
        """Of its process, once it had a turn."""
        assert self._process is not None
        return self._process.pid

    def out(self) -> str:
        """What it has printed so far."""
        return "".join(self._said) if self._marks.output else self._elsewhere()

    def _elsewhere(self) -> str:
        size = os.fstat(self._rest.fileno()).st_size
        return os.pread(self._rest.fileno(), size, 0).decode(errors="replace")  # the process goes on writing where it was

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # ends a stopped process, too
            self._process.wait()
            self._watched.close()
        self._rest.close()

    def _go_on(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            streams = (subprocess.PIPE, self._rest) if self._marks.output else (self._rest, subprocess.PIPE)
            self._process = subprocess.Popen(self.command, bufsize=0, stdout=streams[0], stderr=streams[1])
            watched = self._process.stdout if self._marks.output else self._process.stderr
            assert watched is not None
            self._watched = watched
        else:
            self._process.send_signal(signal.SIGCONT)
        return self._process

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        if process.returncode is not None:  # it ended before its stop: what it printed says whether that is all
            return
        os.kill(process.pid, signal.SIGSTOP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)  # stopped, not merely told to
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)

    def _ran_on(self) -> bool:
        """Whether a timed part has begun before the stop, or since (somebody else may have let the process go on)."""
        while self._process is not None and select.select([self._watched], [], [], 0)[0]:
            part = os.read(self._watched.fileno(), 1 << 16)
            if not part:
                break
            self._unread += part
        return bool(self._marks.timed.search(self._unread.decode(errors="replace")))

    def _line(self) -> str:
        """The next line; empty at its end."""
        while b"\n" not in self._unread:
            part = os.read(self._watched.fileno(), 1 << 16)
            if not part:
                break
            self._unread += part
        line, newline, self._unread = self._unread.partition(b"\n")
        return (line + newline).decode(errors="replace")
