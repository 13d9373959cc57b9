"""How many threads are of use: the cores that this process may run on, or as many as its control group's quota pays for.

A container that may use one core's time of a large machine sees all of them: threads for each would stop one another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tensormill.errors import BackendError

_GROUP = Path("/sys/fs/cgroup")


def default_threads(group: Path = _GROUP) -> int:
    """At least one; `group`: the folder of the control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # version 2 alone; "max" is no number
        quota, period = map(int, (group / "cpu.max").read_text().split())
        return min(cores, max(-(-quota // period), 1))
    return cores


@contextmanager
def starting(threads: int) -> Iterator[None]:
    """BackendError if the system refuses so many threads meanwhile."""
    try:
        yield
    except RuntimeError as why:
        raise BackendError(f"{threads} threads cannot be started ({why}); lower --threads") from why
