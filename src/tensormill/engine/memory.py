"""How much memory is free, as far as the system says: what caches may be made of after the weights are in.

Linux's estimate of what can be had without swapping, and the limit of the control group (a container's) if that is lower.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SHARE = 0.75  # of what is free that caches may take: values in flight, and other programs, need some too
_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Bytes that can be had; None if the system does not tell."""
    known = [n for n in (_available(), _group_room()) if n is not None]
    return min(known, default=None)


def _available() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _group_room() -> int | None:
    """What the control group leaves; its file cache can be had back."""
    with suppress(OSError, ValueError):
        limit = int((_GROUP / "memory.max").read_text())
        used = int((_GROUP / "memory.current").read_text())
        lines = (_GROUP / "memory.stat").read_text().splitlines()
        cached = next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
        return max(limit - used + cached, 0)
    return None
