"""Processes that run to their end: what they printed, how long they took, the most memory they had."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POLL = 0.02  # seconds between looks at a process
BUSY = "while True: pass"


@dataclass(frozen=True)
class Finished:
    """A process that ended well: what it printed, how long it took, the most memory it had."""

    out: str
    seconds: float
    megabytes: float


def finish(command: Sequence[str]) -> Finished:
    """Run a process to its end, or to ours; SystemExit tells what it said if it failed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        started, most = time.perf_counter(), 0.0
        process = subprocess.Popen(command, stdout=out, stderr=error)
        try:
            while process.poll() is None:
                most = max(most, peak_megabytes(process.pid))
                time.sleep(POLL)
        finally:
            process.kill()
            process.wait()
        seconds = time.perf_counter() - started
        out.seek(0)
        error.seek(0)
        if process.returncode:
            raise failure(command, process.returncode, error.read())
        return Finished(out.read(), seconds, most)


def failure(command: Sequence[str], code: int, said: str, when: str = "") -> SystemExit:
    """How a process ended that should not have, and the end of what it said."""
    died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return SystemExit(f"{' '.join(command)}\nended {when}with {died}:\n{said[-2000:]}")


def peak_megabytes(pid: int) -> float:
    """The most memory that a process has had so far (its rusage would tell of its parent's, too); 0 where none can say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


@contextmanager
def busy_process() -> Iterator[None]:
    """Another process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()
