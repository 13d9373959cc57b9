"""What a benchmark must know of the machine: its CPU, whether it is quiet, and how fast it reads memory.

Not a profiler. `read_bandwidth` is the roof over decoding, where every weight is read once a token; `Pressure` tells
how much of a run the scheduler kept somebody waiting, which is how another busy process shows.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
QUIET = 0.05  # share of time in which some task waited for a core


def cpu_name() -> str:
    """The CPU's own name for itself."""
    for key, value in _cpuinfo():
        if key == "model name":
            return value
    return platform.processor() or platform.machine()


def cpu_features() -> list[str]:
    """The instruction sets that matter here, sorted; on anything but Linux, only the architecture."""
    for key, value in _cpuinfo():
        if key in ("flags", "Features"):
            wanted = ("avx", "amx", "fma", "f16c", "bmi2", "neon", "asimd", "sve", "i8mm", "bf16", "fphp")
            return sorted(flag for flag in value.split() if flag.startswith(wanted))
    return [platform.machine()]


def _cpuinfo() -> list[tuple[str, str]]:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition(":") for line in lines if ":" in line)
    return [(key.strip(), value.strip()) for key, _, value in pairs]


class Pressure:
    """CPU pressure since this object was made: the share of time in which some runnable task had no core."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._waited = self._total()

    def share(self) -> float | None:
        """0 = nobody waited, 1 = somebody always did; None where the kernel does not say."""
        now = self._total()
        if now is None or self._waited is None:
            return None
        return (now - self._waited) / max(time.monotonic() - self._since, 1e-6)

    @staticmethod
    def _total() -> float | None:
        if not PRESSURE.exists():
            return None
        some = PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6


def wait_until_quiet(patience: float) -> bool:
    """Wait up to `patience` seconds for a second without pressure; whether one came (True where nobody can say)."""
    deadline = time.monotonic() + patience
    while True:
        pressure = Pressure()
        time.sleep(1)
        if (pressure.share() or 0) < QUIET:
            return True
        if time.monotonic() > deadline:
            return False


def into_page_cache(path: Path) -> None:
    """Read a file once, so that whoever loads it next reads no disk."""
    block = bytearray(1 << 24)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def read_bandwidth(size: int, threads: int) -> float:
    """Bytes a second at which `threads` threads read a block of `size` bytes again and again: the best of many passes.

    The block is as large as what decoding reads, so a cache that could hold it counts for what it is.
    """
    from tensormill.backends.cpu.limits import read_rate

    return read_rate(size, threads)


def about() -> dict[str, object]:
    """What a report says of the machine."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "features": cpu_features(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
