"""/health tells whether requests are taken, not whether a model happens to be loaded."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from server.live import CONTEXT, Live, serving, write_model


def health(live: Live) -> tuple[int, Any]:
    answer = httpx.get(live.url + "/health", timeout=30)
    return answer.status_code, answer.json()


def ask(live: Live, model: str = "") -> httpx.Response:
    return httpx.post(live.url + "/v1/completions", json={"model": model, "prompt": "x", "max_tokens": 1}, timeout=60)


def test_a_server_that_loads_on_demand_is_ready_but_while_it_loads(model: Path) -> None:
    with serving(model, flags=("--no-preload",), wait=False) as live, ThreadPoolExecutor(1) as pool:
        unloaded = {"status": "ok", "models": {"tiny": "unloaded"}}
        assert health(live) == (200, unloaded)
        asked, seen = pool.submit(ask, live), []
        while not asked.done():
            seen.append(health(live))
            time.sleep(0.02)
        assert asked.result().status_code == 200
        assert any(status == 503 and found["models"]["tiny"].startswith("loading") for status, found in seen)
        assert health(live) == (200, {"status": "ok", "models": {"tiny": "ok"}})
        httpx.post(live.url + "/api/generate", json={"keep_alive": 0}, timeout=30)
        assert health(live) == (200, unloaded)


def test_whoever_tries_the_address_learns_what_it_is(live: Live) -> None:
    assert httpx.head(live.url + "/", timeout=30).status_code == 200  # Ollama's command line asks this first
    found = httpx.get(live.url, timeout=30).json()
    assert found["server"].startswith("TensorMill ") and set(found["apis"]) == {"OpenAI", "Anthropic", "Ollama"}
    assert httpx.get(live.url + found["routes"], timeout=30).status_code == 200


def test_the_log_tells_of_loads_and_of_a_context_beyond_training(model: Path) -> None:
    with serving(model, flags=("--ctx", str(CONTEXT + 1))) as live:
        slots = httpx.get(live.url + "/props", timeout=30).json()["total_slots"]
        told = {line["message"]: line for text in live.lines if text.startswith("{") for line in [json.loads(text)]}
    assert slots == 16
    (beyond,) = (line for message, line in told.items() if "trained" in message)
    assert (beyond["level"], beyond["ctx"], beyond["trained"]) == ("warning", CONTEXT + 1, CONTEXT)
    assert told["model loaded"]["context"] == CONTEXT + 1


def test_a_server_whose_only_model_cannot_be_loaded_is_not_ready(tmp_path: Path, model: Path) -> None:
    broken = write_model(tmp_path / "broken.gguf", lacks="output_norm.weight")
    with serving(broken, flags=("--no-preload",), wait=False) as live:
        assert health(live)[0] == 200
        assert ask(live).status_code == 503
        assert health(live) == (503, {"status": "failed", "models": {"broken": "failed"}})
    with serving(broken, model, flags=("--no-preload",), wait=False) as live:
        assert ask(live).status_code == 503
        assert health(live) == (200, {"status": "ok", "models": {"broken": "failed", "tiny": "unloaded"}})
