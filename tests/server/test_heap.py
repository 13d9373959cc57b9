"""The heap does not grow by reading, as it does if buffers of 256 KiB are cut to what came amid small objects."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from server.live import SOURCES

# Prints by how much the heap grew in the last 3000 of 4000 reads, of which the last fifty or so live.
READS = """
import ctypes, os, random, sys
from tensormill.server.heap import keep_large_buffers_apart

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"abcdefghi")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
if sys.argv[1] == "apart":
    assert keep_large_buffers_apart()
bytes(1 << 20)  # freed at once
out, into = os.pipe()
kept, rng, heaps = [], random.Random(1), []
for n in range(4000):
    os.write(into, b"x" * rng.randrange(520, 900))
    kept.append(os.read(out, 256 * 1024))
    if len(kept) > 50:
        del kept[rng.randrange(50)]
    if n % 1000 == 999:
        heaps.append(libc.mallinfo2().arena)
print(heaps[-1] - heaps[0])
"""


def grown(how: str) -> int:
    """Bytes."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", READS, how]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 33),
    reason="needs glibc 2.33 or newer, whose threshold and mallinfo2 these are",
)
def test_reading_does_not_make_the_heap_grow() -> None:
    assert grown("as it was") > 100_000
    assert grown("apart") == 0
