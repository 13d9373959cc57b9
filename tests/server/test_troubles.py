"""What breaks other servers: clients that go, engines that die, crowds, tenants, and the end of the process."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from server.live import SOURCES, Live, serving, write_model

LONG = {"prompt": [97 + i % 7 for i in range(6000)], "max_tokens": 100, "ignore_eos": True}


def left_alone(live: Live, body: dict[str, Any], seconds: float, path: str = "/v1/completions") -> None:
    """Ask, and go before there is an answer."""
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(live.url + path, json=body, timeout=httpx.Timeout(60, read=seconds))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_during_prefill_frees_its_pages_within_a_step(slow: Path, stream: bool) -> None:
    with serving(slow, flags=("--chunk", "16")) as live:
        body = {**LONG, "stream": stream, "prompt": [98 + stream, *LONG["prompt"]]}
        if stream:  # headers come at once; the first token would come at the end of the prefill
            with httpx.stream("POST", live.url + "/v1/completions", json=body, timeout=60) as answer:
                assert answer.status_code == 200
                time.sleep(0.3)
                assert live.metric("num_requests_running") == 1
        else:
            left_alone(live, body, 0.5)
        gone = live.metric("engine_steps_total")
        live.until("num_requests_running", 0)
        assert live.metric("kv_pages_held") == 0
        freed = live.metric("engine_steps_total")
        assert 0 < gone < 300  # of 375 that the prompt would take
        assert freed - gone <= 3  # its own, and those that ran while the metrics were read
        time.sleep(0.2)
        assert live.metric("engine_steps_total") == freed


def test_64_clients_of_mixed_lengths_lose_nothing(live: Live) -> None:
    rng = random.Random(1)
    jobs = [(f"{i} " + "word " * rng.randrange(1, 60), rng.randrange(1, 40), bool(i % 2)) for i in range(64)]

    def one(job: tuple[str, int, bool]) -> tuple[int, str]:
        prompt, n, stream = job
        body = {"prompt": prompt, "max_tokens": n, "ignore_eos": True, "stream": stream, "temperature": 0.0}
        if not stream:
            made = httpx.post(live.url + "/v1/completions", json=body, timeout=120).json()
            return made["usage"]["completion_tokens"], made["choices"][0]["text"]
        body["stream_options"] = {"include_usage": True}
        text = httpx.post(live.url + "/v1/completions", json=body, timeout=120).text
        assert text.endswith("data: [DONE]\n\n")
        *parts, last = [json.loads(line) for line in text.split("data: ")[1:-1]]
        return last["usage"]["completion_tokens"], "".join(p["choices"][0]["text"] for p in parts)

    with ThreadPoolExecutor(64) as pool:
        crowd = list(pool.map(one, jobs))
    assert [tokens for tokens, _ in crowd] == [n for _, n, _ in jobs]
    assert crowd == [one(job) for job in jobs]  # each is answered as it is alone
    live.until("num_requests_running", 0)
    assert live.metric("kv_pages_held") == 0
    assert live.metric("num_requests_waiting") == 0


def test_a_seed_gives_the_same_alone_and_in_a_batch_of_16(client: openai.OpenAI, live: Live) -> None:
    def one(seed: int) -> str:
        extra = {"ignore_eos": True}
        made = client.completions.create(model="tiny", prompt="once", seed=seed, max_tokens=24, temperature=1, extra_body=extra)
        return made.choices[0].text

    before = live.metric("engine_steps_total")
    alone = [one(seed) for seed in range(16)]
    between = live.metric("engine_steps_total")
    with ThreadPoolExecutor(16) as pool:
        crowd = list(pool.map(one, range(16)))
    assert crowd == alone
    assert len(set(crowd)) == 16
    assert live.metric("engine_steps_total") - between < (between - before) / 2  # steps were shared indeed


def test_guesses_change_no_answer_and_are_counted(model: Path, client: openai.OpenAI) -> None:
    ask = {
        "model": "tiny",
        "prompt": "abcabcabcabc" * 10,
        "max_tokens": 60,
        "temperature": 0,
        "extra_body": {"ignore_eos": True},
    }
    plain = client.completions.create(**ask, n=3).choices
    with serving(model, flags=("--drafts", "4")) as live:
        guessing = openai.OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0)
        made = guessing.completions.create(**ask, n=3)
        assert [c.text for c in made.choices] == [c.text for c in plain]
        assert made.timings["draft_n"] == live.metric("spec_decode_num_draft_tokens_total") > 0


def test_an_idle_server_costs_nothing(live: Live) -> None:
    def seconds() -> float:
        pids = (live.process.pid, live.engine_pid())
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
        return sum(int(f[11]) + int(f[12]) for f in fields) / os.sysconf("SC_CLK_TCK")

    before = seconds()
    time.sleep(1)
    assert seconds() - before < 0.1


def test_two_tenants_never_share_a_page(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# who\nann ann-secret-key\nbob bob-secret-key\n\nlonely-secret-key\n")
    with serving(model, flags=("--api-key-file", str(keys)), key="ann-secret-key") as live:

        def cached(key: str, **more: Any) -> int:
            body = {"prompt": "a" * 1000, "max_tokens": 1, **more}
            made = httpx.post(live.url + "/v1/completions", json=body, headers={"authorization": f"Bearer {key}"}).json()
            return int(made["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert cached("ann-secret-key") == 0
        assert cached("ann-secret-key") >= 900
        assert cached("bob-secret-key") == 0
        assert cached("ann-secret-key", cache_salt="mine") == 0
        assert cached("ann-secret-key", cache_salt="mine") >= 900


def test_a_tenant_who_floods_does_not_keep_others_waiting(slow: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann ann-secret-key\nbob bob-secret-key\n")
    flags = ("--api-key-file", str(keys), "--sequences", "2", "--max-queue", "100")
    with serving(slow, flags=flags, key="ann-secret-key") as live, ThreadPoolExecutor(32) as pool:

        def ask(who: str, number: int) -> float:
            body = {"prompt": f"{who} {number}", "max_tokens": 40, "ignore_eos": True, "priority": 9 if who == "ann" else 0}
            key = {"authorization": f"Bearer {who}-secret-key"}
            answer = httpx.post(live.url + "/v1/completions", json=body, headers=key, timeout=60)
            assert answer.json()["usage"]["completion_tokens"] == 40
            return time.monotonic()

        flood = [pool.submit(ask, "ann", i) for i in range(30)]
        time.sleep(0.2)
        bob = pool.submit(ask, "bob", 0).result()
        later = sum(f.result() > bob for f in flood)
        assert later >= 20  # of 30 that had come before, at most the few that were under way end first


def test_every_route_but_health_wants_a_key(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("ann ann-secret-key\n")
    with serving(model, flags=("--api-key-file", str(keys)), key="ann-secret-key") as live:
        paths = httpx.get(live.url + "/openapi.json", headers=live.headers).json()["paths"]
        for path, methods in paths.items():
            for method in methods:
                answer = httpx.request(method, live.url + path.replace("{", "").replace("}", ""))
                assert (answer.status_code == 401) != path.startswith("/health"), path
        assert httpx.get(live.url + "/nothing").status_code == 401
        assert httpx.get(live.url + "/metrics", headers={"authorization": "Bearer ann-secret-kez"}).status_code == 401
        assert httpx.get(live.url + "/metrics", headers={"x-api-key": "ann-secret-key"}).status_code == 200
        ann = openai.OpenAI(base_url=live.url + "/v1", api_key="ann-secret-key")
        assert ann.models.list().data
        made = ann.responses.create(model="tiny", input="x", max_output_tokens=2)
        keys.write_text("ann other-secret-key\n")  # read at the start only
        assert ann.responses.retrieve(made.id)
        assert "ann-secret-key" not in "".join(live.lines)


def test_a_killed_engine_fails_what_it_did_at_once_and_is_started_again(slow: Path) -> None:
    with serving(slow, flags=("--chunk", "16")) as live:
        pid, failed = live.engine_pid(), list[Any]()

        def ask(stream: bool) -> None:
            answer = httpx.post(live.url + "/v1/completions", json={**LONG, "stream": stream}, timeout=60)
            failed.append((stream, answer.status_code, answer.text, time.monotonic()))

        threads = [threading.Thread(target=ask, args=(stream,)) for stream in (False, True)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        for thread in threads:
            thread.join(20)
        assert len(failed) == 2
        for stream, status, text, at in failed:
            assert at - killed < 1
            assert status == (200 if stream else 500)
            assert "the engine died" in text
        again = httpx.post(live.url + "/v1/completions", json={"prompt": "x", "max_tokens": 2, "ignore_eos": True}, timeout=60)
        assert again.json()["usage"]["completion_tokens"] == 2
        assert live.engine_pid() != pid
        assert live.metric("engine_restarts_total") == 1


def test_a_killed_server_leaves_no_engine_behind(model: Path) -> None:
    with serving(model) as live:
        pid = live.engine_pid()
        live.process.kill()
        end = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_web_pages_may_call_only_where_that_was_asked_for(live: Live, model: Path) -> None:
    asking = {"origin": "https://example.org", "access-control-request-method": "POST"}
    assert "access-control-allow-origin" not in httpx.options(live.url + "/v1/completions", headers=asking).headers
    with serving(model, flags=("--cors",)) as open_:
        assert httpx.options(open_.url + "/v1/completions", headers=asking).headers["access-control-allow-origin"] == "*"
        assert httpx.get(open_.url + "/v1/models").headers["access-control-allow-origin"] == "*"


def test_web_pages_of_other_sites_cannot_use_a_local_server(live: Live) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    for headers in ({"origin": "https://example.org"}, {"host": "rebound.example.org"}, {"origin": "null"}):
        answer = httpx.post(live.url + "/v1/completions", json=body, headers=headers)
        assert answer.status_code == 403, headers
        assert answer.json()["error"]["message"]
    for headers in ({"origin": "http://localhost:3000"}, {"host": "localhost:8080"}, {"host": "[::1]"}):
        assert httpx.post(live.url + "/v1/completions", json=body, headers=headers).status_code == 200, headers


def test_https(model: Path, tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    made = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made], check=True, capture_output=True)
    flags = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with serving(model, flags=flags) as live:
        assert live.url.startswith("https://")
        body = {"prompt": "x", "max_tokens": 2, "ignore_eos": True}
        answer = httpx.post(live.url + "/v1/completions", json=body, verify=False)
        assert answer.json()["usage"]["completion_tokens"] == 2


def serve_fails(*words: str) -> str:
    command = [sys.executable, "-m", "tensormill.cli.main", "serve", *words]
    made = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SOURCES)}, timeout=60, check=False
    )
    assert made.returncode in (1, 2), made.stderr
    assert "Traceback" not in made.stderr
    return made.stderr


def test_what_cannot_be_served_is_said_at_once(model: Path, tmp_path: Path) -> None:
    assert "--api-key-file" in serve_fails(str(model), "--host", "0.0.0.0")
    assert "no file" in serve_fails("nothing.gguf")
    empty = tmp_path / "empty"
    empty.write_text("# none\n")
    assert "no keys" in serve_fails(str(model), "--api-key-file", str(empty))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-2000])
    assert "cut.gguf" in serve_fails(str(model), str(cut))
    lacking = write_model(tmp_path / "lacking.gguf", lacks="output_norm.weight")
    told = serve_fails(str(lacking), "--port", "0")
    assert "output_norm" in told and "serving on" not in told
    assert "--alias" in serve_fails(str(model), "--alias", "a=b")
    assert "--tls-key go together" in serve_fails(str(model), "--tls-cert", str(empty))
    assert str(empty) in serve_fails(str(model), "--tls-cert", str(empty), "--tls-key", str(empty))
    assert "no file nowhere.pem" in serve_fails(str(model), "--tls-cert", str(empty), "--tls-key", "nowhere.pem")


def test_a_model_that_cannot_be_loaded_is_an_error_that_says_why(tmp_path: Path, model: Path) -> None:
    broken = write_model(tmp_path / "broken.gguf", lacks="output_norm.weight")
    with serving(model, broken) as live:
        answer = httpx.post(live.url + "/v1/completions", json={"model": "broken", "prompt": "x"}, timeout=30)
        assert answer.status_code in (400, 503)
        assert "output_norm" in answer.json()["error"]["message"]
        logged = [json.loads(line) for line in live.lines if line.startswith("{")]
        assert [line["model"] for line in logged if line["message"] == "model loaded"] == ["tiny.gguf"]
        assert any(line["message"] == "a model cannot be loaded" and "output_norm" in line["error"] for line in logged)
        assert httpx.post(live.url + "/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code == 200


def test_prompts_are_in_no_log(model: Path) -> None:
    with serving(model) as live:
        httpx.post(live.url + "/v1/completions", json={"prompt": "very-secret", "max_tokens": 2, "very_unknown": 1})
        httpx.post(live.url + "/v1/completions", json={"prompt": ["very-secret", 5]})
        time.sleep(0.2)
        lines = [json.loads(line) for line in live.lines if line.startswith("{")]
        assert any("very_unknown" in str(line.get("fields")) for line in lines)
        assert any((line.get("status"), line.get("model")) == (200, "tiny") for line in lines)
        assert "very-secret" not in "".join(live.lines)
