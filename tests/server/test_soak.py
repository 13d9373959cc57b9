"""A while of mixed traffic, much of it given up halfway, ends with nothing left over. TENSORMILL_SOAK=600 is the long lane."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from server.live import Live, serving

SECONDS = float(os.environ.get("TENSORMILL_SOAK", "20"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")]


def handles(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def traffic(live: Live, seconds: float, seed: int) -> None:
    rng, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        body = {"prompt": "".join(rng.choices("abcdefgh ", k=rng.randrange(1, 1500))), "max_tokens": rng.randrange(1, 60)}
        patience = rng.choice([0.01, 0.05, 0.2, 30, 30])
        timeout = httpx.Timeout(30, read=patience)
        try:
            match rng.randrange(4):
                case 0:
                    httpx.post(live.url + "/v1/completions", json=body, timeout=timeout)
                case 1:
                    with httpx.stream(
                        "POST", live.url + "/v1/completions", json={**body, "stream": True}, timeout=timeout
                    ) as got:
                        for n, _ in enumerate(got.iter_raw()):
                            if n > 5 and rng.random() < 0.3:
                                break
                case 2:
                    httpx.post(live.url + "/v1/embeddings", json={"input": body["prompt"]}, timeout=timeout)
                case 3:
                    got = httpx.post(live.url + "/v1/responses", json={"input": body["prompt"]}, timeout=timeout)
        except httpx.TimeoutException:
            pass


def test_nothing_is_left_over(model: Path) -> None:
    with serving(model, flags=("--sequences", "8", "--ctx", "4096")) as live, ThreadPoolExecutor(12) as pool:
        pids = (live.process.pid, live.engine_pid())

        def burst(seconds: float) -> list[tuple[int, int]]:
            list(pool.map(lambda i: traffic(live, seconds, i), range(12)))
            live.until("num_requests_running", 0)
            assert live.metric("kv_pages_held") == 0
            assert live.metric("num_requests_waiting") == 0
            return [(handles(pid), resident(pid)) for pid in pids]

        before = burst(SECONDS / 2)
        time.sleep(0.5)
        after = burst(SECONDS / 2)
        assert live.metric("engine_restarts_total") == 0
        for (files, memory), (files_later, memory_later) in zip(before, after, strict=True):
            assert files_later <= files + 2
            assert memory_later <= memory * 1.05 + (4 << 20)
