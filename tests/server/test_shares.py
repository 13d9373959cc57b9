"""No key has all threads or all places of the queue, and work that nobody waits for any more still counts."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.live import serving
from tensormill.server.aside import Aside


def test_abandoned_work_holds_its_keys_threads_and_no_others() -> None:
    gate, ran = threading.Event(), list[str]()

    def work(name: str, wait: bool) -> str:
        if wait:
            assert gate.wait(20)
        ran.append(name)
        return name

    async def main() -> None:
        aside = Aside(threads=2, each=1)
        gone = asyncio.create_task(aside.run("ann", work, "first", True))
        await asyncio.sleep(0.05)
        gone.cancel()
        second = asyncio.create_task(aside.run("ann", work, "second", False))
        third = asyncio.create_task(aside.run("ann", work, "third", False))
        assert [await aside.run("bob", work, f"bob {i}", False) for i in range(3)] == ["bob 0", "bob 1", "bob 2"]
        assert ran == ["bob 0", "bob 1", "bob 2"]
        third.cancel()  # it had not begun, and never does
        gate.set()
        assert await asyncio.wait_for(second, 20) == "second"
        assert await aside.run("ann", work, "fourth", False) == "fourth"

    asyncio.run(main())
    assert ran[3:] == ["first", "second", "fourth"]


def test_what_the_work_raises_is_raised() -> None:
    async def main() -> None:
        aside = Aside(threads=1, each=1)
        for _ in range(2):  # its thread is free again
            with pytest.raises(ZeroDivisionError):
                await aside.run("ann", divmod, 1, 0)

    asyncio.run(main())


def test_a_tenant_cannot_take_all_places(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann ann-secret-key\nbob bob-secret-key\n")
    flags = ("--api-key-file", str(keys), "--sequences", "2", "--max-queue", "6")
    with serving(model, flags=flags, key="ann-secret-key") as live:

        def ask(who: str, n: int, tokens: int = 2) -> httpx.Response:
            body: dict[str, Any] = {"prompt": "x", "n": n, "max_tokens": tokens, "ignore_eos": True}
            headers = {"authorization": f"Bearer {who}-secret-key"}
            return httpx.post(live.url + "/v1/completions", json=body, headers=headers, timeout=60)

        assert ask("ann", 5).status_code == 400  # of 8 places at most 4 are hers
        with ThreadPoolExecutor(1) as pool:
            hers = pool.submit(ask, "ann", 4, 3000)
            live.until("num_requests_running", 2)
            assert (ask("ann", 1).status_code, ask("bob", 3).status_code) == (429, 429)
            assert ask("bob", 2).status_code == 200
            assert hers.result().status_code == 200
