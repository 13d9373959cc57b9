"""The team of threads: it sleeps when idle, is shared by executables, and survives being called from many threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ops.cpu_driver import OneOp, normal
from tensormill.backends.cpu import compile
from tensormill.backends.cpu.cores import default_threads
from tensormill.backends.cpu.memory import region
from tensormill.backends.cpu.native import native
from tensormill.errors import BackendError


def busy() -> float:
    times = os.times()
    return times.user + times.system


def big() -> OneOp:
    return OneOp(
        normal(64, 512), lambda g, w, v: g.linear(g.silu(g.linear(v, w.a)), w.b), a=normal(1024, 512), b=normal(512, 1024)
    )


def test_an_idle_pool_burns_nothing() -> None:
    one = big()
    made = compile(one.program, one.source, one.limits, threads=4)
    for _ in range(3):
        made.run(one.step([64]))
    time.sleep(0.05)
    before = busy()
    time.sleep(0.5)
    assert busy() - before < 0.05


def test_executables_take_turns_on_one_pool() -> None:
    one = big()
    step = one.step([64])
    executables = [compile(one.program, one.source, one.limits, threads=3) for _ in range(3)]
    expected = np.array(executables[0].run(step)["out"])
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(10):
            if not np.array_equal(executables[i].run(step)["out"], expected):
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_a_product_of_many_tokens_is_the_same_cut_for_several_threads() -> None:
    """Blocks of tokens times chunks of rows, and a bias on each."""
    one = OneOp(normal(530, 96), lambda g, w, v: g.linear(v, w.a, w.b), a=normal(700, 96), b=normal(1, 700)[0])
    alone, together = (
        np.array(compile(one.program, one.source, one.limits, threads=n).run(one.step([530]))["out"]) for n in (1, 3)
    )
    np.testing.assert_array_equal(alone, together)


def test_more_threads_than_cores_finish() -> None:
    one = big()
    step = one.step([64])
    expected = np.array(compile(one.program, one.source, one.limits, threads=1).run(step)["out"])
    made = compile(one.program, one.source, one.limits, threads=16)
    for _ in range(5):
        np.testing.assert_array_equal(made.run(step)["out"], expected)


def test_the_interpreter_runs_meanwhile() -> None:
    one = OneOp(normal(256, 2048), lambda g, w, v: g.linear(v, w.a), a=normal(4096, 2048))
    made = compile(one.program, one.source, one.limits, threads=1)
    step = one.step([256])
    ticks = 0
    done = threading.Event()

    def work() -> None:
        for _ in range(5):
            made.run(step)
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    worker.join()
    assert ticks > 5


def test_as_many_threads_as_a_container_pays_for(tmp_path: Path) -> None:
    cores = default_threads(tmp_path)  # no control group
    assert cores >= 1
    for quota, threads in (("max 100000", cores), ("10000000 100000", cores), ("100000 100000", 1), ("20000 100000", 1)):
        (tmp_path / "cpu.max").write_text(quota + "\n")
        assert default_threads(tmp_path) == min(threads, cores), quota
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert default_threads(tmp_path) == min(2, cores)


def test_more_memory_than_there_is_is_refused_at_once() -> None:
    with pytest.raises(BackendError, match=r"one block of 4\.295e\+09 GiB is needed, and this machine has"):
        region(1 << 62)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="only Linux tells what memory is")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="address space is limited as Linux does it")
@pytest.mark.parametrize("start", ["native.pool(1000)", "limits.read_rate(1 << 22, 1000)", "limits.dot_rate(1000)"])
def test_threads_that_the_system_refuses_are_told(start: str) -> None:
    """Each takes address space for its stack: with 256 MB of it a thousand cannot begin, and those that did must end."""
    program = f"""
import resource
from tensormill.backends.cpu import limits, native
from tensormill.errors import BackendError
native.pool(2)
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    {start}
except BackendError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("1000 threads cannot be started") and "lower --threads" in done.stdout


def test_large_memory_is_private() -> None:
    """Shared memory, which Python maps where nothing else is said, gets no huge pages: a decode of weights is 15 % slower."""
    memory = region(8 << 20)
    with open("/proc/self/maps") as maps:
        spans = [line.split()[:2] for line in maps]
    found = [rights for span, rights in spans if _holds(span, memory.ctypes.data)]
    assert found == ["rw-p"]


def _holds(span: str, address: int) -> bool:
    first, last = (int(n, 16) for n in span.split("-"))
    return first <= address < last


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where threads are, and lets them be moved")
def test_a_thread_that_lost_its_core_is_given_that_of_who_waits() -> None:
    one = OneOp(normal(16, 1024), lambda g, w, v: g.linear(v, w.a), a=normal(4096, 1024))
    step = one.step([16])
    expected = np.array(compile(one.program, one.source, one.limits, threads=1).run(step)["out"])
    made = compile(one.program, one.source, one.limits, threads=2)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    before, deadline = native().calls(), time.monotonic() + 60
    try:
        while native().calls() < before + 20 and time.monotonic() < deadline:
            np.testing.assert_array_equal(made.run(step)["out"], expected)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert native().calls() >= before + 20
    deadline = time.monotonic() + 20  # the last one may be on its way
    while _affinities() != {frozenset(os.sched_getaffinity(0))} and time.monotonic() < deadline:
        made.run(step)
    assert _affinities() == {frozenset(os.sched_getaffinity(0))}, "all may run where they might before"


def _affinities() -> set[frozenset[int]]:
    """The cores on which the threads of this process may run."""
    return {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")}
