"""What a benchmark must know of the machine: its CPU, whether it is quiet, and how fast it reads memory.

Not a profiler. `read_bandwidth` is the roof over decoding, where every weight is read once a token; `Pressure` tells
how much of a run the scheduler kept somebody waiting, which is how another busy process shows.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PRESSURE = Path("/proc/pressure/cpu")
QUIET = 0.05  # share of time in which some task waited for a core

READER = r"""
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
typedef uint64_t line __attribute__((vector_size(64)));
typedef struct {
    const line *from, *to; double *start, *end; int passes, threads; atomic_int *arrived; line sum;
} share;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

/* Four streams a thread keep more lines in flight than one; the xor is free beside the loads. */
static line stream(const line *p, const line *end) {
    line a = {0}, b = {0}, c = {0}, d = {0};
    size_t quarter = (end - p) / 4;
    for (size_t i = 0; i < quarter; i++) {
        a ^= p[i]; b ^= p[i + quarter]; c ^= p[i + 2 * quarter]; d ^= p[i + 3 * quarter];
    }
    return a ^ b ^ c ^ d;
}
static void *work(void *of) {
    share *s = of;
    for (int n = 0; n < s->passes; n++) {
        atomic_fetch_add(s->arrived, 1);
        while (atomic_load(s->arrived) < (n + 1) * s->threads) sched_yield();
        s->start[n] = now();
        s->sum ^= stream(s->from, s->to);
        s->end[n] = now();
    }
    return 0;
}

/* Seconds of each pass over `bytes` by `threads` threads, from the first that starts to the last that ends. */
int read_passes(size_t bytes, int threads, int passes, double *seconds) {
    char *block = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (block == MAP_FAILED) return 1;
#ifdef MADV_HUGEPAGE
    madvise(block, bytes, MADV_HUGEPAGE);
#endif
    memset(block, 1, bytes);
    atomic_int arrived = 0;
    pthread_t *all = calloc(threads, sizeof *all);
    share *shares = aligned_alloc(sizeof(line), threads * sizeof *shares);
    double *times = calloc(2 * (size_t)threads * passes, sizeof *times);
    size_t each = bytes / threads / 256 * 256 / sizeof(line);
    for (int i = 0; i < threads; i++) {
        const line *from = (const line *)block + each * i;
        double *own = times + 2 * (size_t)i * passes;
        shares[i] = (share){from, from + each, own, own + passes, passes, threads, &arrived, {0}};
        pthread_create(&all[i], 0, work, &shares[i]);
    }
    for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
    for (int n = 0; n < passes; n++) {
        double start = shares[0].start[n], end = shares[0].end[n];
        for (int i = 1; i < threads; i++) {
            if (shares[i].start[n] < start) start = shares[i].start[n];
            if (shares[i].end[n] > end) end = shares[i].end[n];
        }
        seconds[n] = end - start;
    }
    free(all); free(shares); free(times); munmap(block, bytes);
    return 0;
}
"""


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


@functools.cache
def read_bandwidth(size: int, threads: int) -> float:
    """Bytes a second at which `threads` threads read a block of `size` bytes again and again: the best of many passes.

    The block is as large as the weights that decoding reads, so a cache that could hold them counts for what it is.
    """
    passes = max(10, min(100, int(20e9 / size)))
    seconds = (ctypes.c_double * passes)()
    if _reader().read_passes(ctypes.c_size_t(size), threads, passes, seconds):
        raise MemoryError(f"no {size} bytes for the bandwidth measurement")
    return size / min(seconds[2:])  # the first passes fill the caches


@functools.cache
def _reader() -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("clang") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("no C compiler found for the bandwidth measurement")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "reader.c", Path(folder) / "reader.so"
        source.write_text(READER)
        native = "-mcpu=native" if platform.machine() == "arm64" else "-march=native"
        command = [compiler, "-O3", native, "-shared", "-fPIC", "-pthread", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def about() -> dict[str, object]:
    """What a report says of the machine."""
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "features": cpu_features(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
