"""How a server ends: answers under way may end, and what does not in time is told so in its API's words."""

from __future__ import annotations

import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.live import serving

_MUCH = [{"role": "user", "content": "abcdefg" * 800}]
STREAMS = {
    "/v1/completions": ({"prompt": "abcdefg" * 800}, '{"error":{"message":"the server is stopping"'),
    "/v1/chat/completions": ({"messages": _MUCH}, '{"error":{"message":"the server is stopping"'),
    "/v1/responses": ({"input": _MUCH}, '"status":"failed"'),
    "/v1/messages": (
        {"messages": _MUCH, "max_tokens": 9},
        'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"',
    ),
    "/api/chat": ({"messages": _MUCH}, '{"error":"the server is stopping"}'),
}


def test_sigterm_lets_answers_end(slow: Path) -> None:
    with serving(slow) as live:
        done: list[Any] = []
        body = {"prompt": "x", "max_tokens": 300, "ignore_eos": True}

        def ask() -> None:
            done.append(httpx.post(live.url + "/v1/completions", json=body, timeout=60))

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.3)
        live.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(httpx.HTTPError):
            httpx.get(live.url + "/health", timeout=5)
        thread.join(30)
        assert done[0].json()["usage"]["completion_tokens"] == 300
        assert live.process.wait(10) == 0


@pytest.mark.parametrize(("drain", "signals"), [("1", [signal.SIGTERM]), ("60", [signal.SIGINT, signal.SIGINT])])
def test_what_does_not_end_in_time_is_told_so(slow: Path, drain: str, signals: list[signal.Signals]) -> None:
    def ask(path: str, stream: bool = True) -> httpx.Response:
        return httpx.post(live.url + path, json={**STREAMS[path][0], "stream": stream}, timeout=60)

    with serving(slow, flags=("--chunk", "16", "--drain", drain)) as live, ThreadPoolExecutor(6) as pool:
        streams = {path: pool.submit(ask, path) for path in STREAMS}
        whole = pool.submit(ask, "/v1/completions", False)
        while live.metric("num_requests_running") + live.metric("num_requests_waiting") < 6:
            time.sleep(0.05)
        for number in signals:
            live.process.send_signal(number)
            time.sleep(0.2)
        for path, stream in streams.items():
            text = stream.result().text
            assert STREAMS[path][1] in text and "the server is stopping" in text, path
        assert whole.result().status_code == 503
        assert live.process.wait(15) == 0
        told = [json.loads(line) for line in live.lines if line.startswith("{")]
        assert [t["message"] for t in told if t["message"] in ("stopping", "ending what is under way", "stopped")] == [
            "stopping", "ending what is under way", "stopped",
        ]  # fmt: skip
        assert not [t for t in told if t["level"] == "error"] and "Traceback" not in "".join(live.lines)
