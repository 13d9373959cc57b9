"""What is bounded: the disk, the queue, bodies and time, and the memory that several models share."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from server.live import Live, serving, write_model


def test_a_full_disk_costs_no_answer_and_is_named_in_the_log(model: Path, tmp_path: Path) -> None:
    """No file of the engine may become larger than a page is, from its start on, as where the disk has no room left."""
    body = {"prompt": "a" * 1000, "max_tokens": 4, "temperature": 0, "ignore_eos": True}

    def asked(live: Live) -> tuple[str, int]:
        made = httpx.post(live.url + "/v1/completions", json=body, timeout=60).json()
        return made["choices"][0]["text"], made["usage"]["prompt_tokens_details"]["cached_tokens"]

    with serving(model, flags=("--kv-disk", str(tmp_path))) as live:
        resource.prlimit(live.engine_pid(), resource.RLIMIT_FSIZE, (1000, 1000))
        first, cached = asked(live)
        assert cached == 0 and asked(live) == (first, 960)  # memory has it
        end = time.monotonic() + 20
        while not (told := [line for line in live.lines if "cannot be written" in line]):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert str(tmp_path) in told[0] and ".kv" in told[0]
        assert not [*tmp_path.iterdir()]
        live.until("kv_disk_write_failures_total", 1)
        assert live.metric("kv_disk_bytes") == 0
    with serving(model, flags=("--kv-disk", str(tmp_path))) as live:
        assert asked(live) == (first, 0)
    with serving(model, flags=("--kv-disk", str(tmp_path))) as live:  # what the last one wrote while it ended
        assert asked(live) == (first, 960)


def test_a_disk_that_fills_up_keeps_what_fitted(model: Path, tmp_path: Path) -> None:
    """A file system of 128 KiB, mounted for the server alone: half of a prompt's pages find room."""
    mounted = ("sh", "-c", 'mount -t tmpfs -o size=128k none "$0" && exec "$@"', str(tmp_path))
    within = ("unshare", "--user", "--map-root-user", "--mount", *mounted)
    if not shutil.which("unshare") or subprocess.run([*within, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a system where anybody may mount a file system of their own")
    with serving(model, flags=("--kv-disk", str(tmp_path)), within=within) as live:
        folder = Path(f"/proc/{live.engine_pid()}/root{tmp_path}")

        def asked(letter: str) -> tuple[str, int]:
            body = {"prompt": letter * 1000, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
            made = httpx.post(live.url + "/v1/completions", json=body, timeout=60).json()
            return made["choices"][0]["text"], made["usage"]["prompt_tokens_details"]["cached_tokens"]

        first, cached = asked("a")
        live.until("kv_disk_write_failures_total", 1)
        assert cached == 0 and asked("a") == (first, 960)
        assert asked("b")[1] == 0  # nobody tries to write for a while
        assert live.metric("kv_disk_write_failures_total") == 1
        assert [line for line in live.lines if "cannot be written" in line and "No space left" in line and ".kv" in line]
        files = [*folder.iterdir()]
        assert files and all(f.suffix == ".kv" for f in files)  # the one that did not fit left nothing behind
        assert live.metric("kv_disk_bytes") == sum(f.stat().st_size for f in files)


def test_a_full_queue_says_when_to_come_again(slow: Path) -> None:
    with serving(slow, flags=("--sequences", "1", "--max-queue", "1")) as live:
        body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True}
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: httpx.post(live.url + "/v1/completions", json=body, timeout=60), range(4)))
        assert sorted(a.status_code for a in answers) == [200, 200, 429, 429]
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"]["type"] == "rate_limit_error"


def test_large_bodies_and_slow_answers_have_limits(slow: Path) -> None:
    with serving(slow, flags=("--max-body", "1000", "--timeout", "0.5")) as live:
        large = httpx.post(live.url + "/v1/completions", json={"prompt": "x" * 2000})
        assert large.status_code == 413
        chunked = httpx.post(live.url + "/v1/completions", content=iter([b'{"prompt": "', b"x" * 2000, b'"}']))
        assert chunked.status_code == 413
        late = httpx.post(
            live.url + "/v1/completions", json={"prompt": "x", "max_tokens": 5000, "ignore_eos": True}, timeout=30
        )
        assert late.status_code == 504
        live.until("num_requests_running", 0)


def test_models_are_loaded_when_asked_for_and_unloaded_for_others(model: Path, slow: Path, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other.gguf", seed=6)
    small = ("--ctx", "1024", "--sequences", "2", "--kv-tokens", "16384")

    def sizes(live: Live) -> dict[str, int]:
        return {m["id"]: m["status"]["bytes"] for m in httpx.get(live.url + "/v1/models").json()["data"]}

    with serving(slow, flags=small) as alone:
        room = sizes(alone)["slow"] + other.stat().st_size // 2
        assert sizes(alone)["slow"] > 1.2 * slow.stat().st_size  # the caches too
    with serving(model, slow, other, flags=("--memory", str(room), *small)) as live:

        def loaded() -> set[str]:
            listed = httpx.get(live.url + "/v1/models").json()["data"]
            return {m["id"] for m in listed if m["status"]["loaded"]}

        def ask(name: str, n: int = 1) -> httpx.Response:
            body = {"model": name, "prompt": "x", "max_tokens": n, "ignore_eos": True}
            return httpx.post(live.url + "/v1/completions", json=body, timeout=60)

        assert loaded() == {"tiny"}
        assert ask("other").status_code == 200
        assert loaded() == {"tiny", "other"}
        assert ask("slow").status_code == 200
        assert "slow" in loaded()
        assert "tiny" not in loaded()
        assert sum(sizes(live).values()) <= room
        with ThreadPoolExecutor(1) as pool:
            busy = pool.submit(ask, "slow", 600)
            time.sleep(0.3)
            refused = ask("tiny")
            assert refused.status_code == 503
            assert busy.result().json()["usage"]["completion_tokens"] == 600
        assert ask("tiny").status_code == 200


def test_caches_are_made_as_large_as_memory_for_all_models_allows(model: Path, slow: Path) -> None:
    """Nobody says how large they are to be: the first model's take most of the room, the second's of the rest."""
    room = 5 * slow.stat().st_size

    def ask(live: Live, name: str) -> httpx.Response:
        return httpx.post(live.url + "/v1/completions", json={"model": name, "prompt": "x", "max_tokens": 1}, timeout=60)

    with serving(slow, model, flags=("--memory", str(room), "--ctx", "4096")) as live:
        assert ask(live, "tiny").status_code == 200
        states = [m["status"] for m in httpx.get(live.url + "/v1/models").json()["data"]]
        assert all(s["loaded"] for s in states) and 0.8 * room < sum(s["bytes"] for s in states) <= room
    little = ("--memory", str(slow.stat().st_size), "--no-preload")
    with serving(slow, model, flags=little, wait=False) as live:
        assert ask(live, "tiny").status_code == 200
        answer = ask(live, "slow")
        assert answer.status_code == 503 and "'slow' does not fit into --memory" in answer.json()["error"]["message"]
        assert ask(live, "tiny").status_code == 200
