"""A while of mixed traffic, much of it wrong or given up halfway, ends with nothing left over and no memory grown.

TENSORMILL_SOAK_MINUTES is how long (default 1; the long lane takes 10). The first part warms up: caches fill.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.live import Live, serving

SECONDS = 60 * float(os.environ.get("TENSORMILL_SOAK_MINUTES", "1"))
CLIENTS, SEQUENCES, CONTEXT = 10, 4, 1024
WORDS = ["".join(random.Random(n).choices("abcdefgh", k=2 + n % 9)) for n in range(500)]  # few: a tokenizer remembers thousands
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")]


class Client:
    """Does one thing after another, each as a client would; `done` counts what came to its end."""

    def __init__(self, live: Live, seed: int) -> None:
        self.live, self.rng, self.done = live, random.Random(seed), Counter[str]()
        self.http = httpx.Client(base_url=live.url, timeout=60)
        self._things: list[Callable[[], None]] = [
            self.completes, self.leaves, self.hangs_up, self.calls_a_tool, self.wants_json, self.errs, self.embeds,
            self.responds, self.speaks_other_dialects,
        ]  # fmt: skip

    def run(self, seconds: float) -> None:
        """Go on for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            thing = self.rng.choice(self._things)
            thing()
            self.done[thing.__name__] += 1

    def post(self, path: str, body: dict[str, Any], status: int = 200) -> Any:
        """The JSON of an answer, which has this status."""
        got = self.http.post(path, json=body)
        assert got.status_code == status, (path, body, got.text[:500])
        return got.json()

    def text(self, most: int = 700) -> str:
        """Now and then the beginning is one that others have, too. It ends with a word: pieces would all be remembered."""
        shared = "the same beginning " * 10 if self.rng.random() < 0.4 else ""
        text = (shared + " ".join(self.rng.choices(WORDS, k=most // 7)))[: self.rng.randrange(1, most)]
        return text.rpartition(" ")[0] or WORDS[0]

    def completes(self) -> None:
        n = self.rng.choice([1, 1, 3])
        body = {"model": "tiny", "prompt": self.text(), "max_tokens": self.rng.randrange(1, 40), "n": n, "seed": 1}
        got = self.post("/v1/completions", body | {"ignore_eos": True})
        assert len(got["choices"]) == n and got["usage"]["completion_tokens"] == n * body["max_tokens"]

    def leaves(self) -> None:
        """Breaks off a stream after some pieces."""
        body = {"model": "tiny", "prompt": self.text(), "max_tokens": 200, "ignore_eos": True, "stream": True}
        with self.http.stream("POST", "/v1/completions", json=body) as got:
            for n, _ in enumerate(got.iter_lines()):
                if n > self.rng.randrange(20):
                    break

    def hangs_up(self) -> None:
        """At any point: in the head, in the body, in the prompt's turn."""
        body = b'{"model": "tiny", "prompt": "' + self.text(900).encode() + b'", "max_tokens": 90}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        url = httpx.URL(self.live.url)
        with socket.create_connection((url.host, url.port)) as sock:
            sock.sendall((head + body)[: self.rng.choice([0, 20, len(head) + 9, None])])
            time.sleep(self.rng.choice([0, 0.01, 0.1]))

    def calls_a_tool(self) -> None:
        """Two turns."""
        messages: list[Any] = [{"role": "user", "content": "How is Paris?" + self.text(50)}]
        body = {"model": "actor", "tools": [TOOL], "temperature": 0}
        said = self.post("/v1/chat/completions", body | {"messages": messages})["choices"][0]
        assert said["finish_reason"] == "tool_calls"
        (call,) = said["message"]["tool_calls"]
        messages += [said["message"], {"role": "tool", "tool_call_id": call["id"], "content": "18"}]
        last = self.post("/v1/chat/completions", body | {"messages": messages})["choices"][0]["message"]
        assert last["content"] == "It is 18 degrees in Paris!"

    def wants_json(self) -> None:
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
        messages = [{"role": "user", "content": self.text(50)}]
        self.post("/v1/chat/completions", {"model": "actor", "messages": messages, "response_format": wanted, "max_tokens": 20})

    def errs(self) -> None:
        which = self.rng.randrange(5)
        if which == 0:
            self.post("/v1/completions", {"model": "tiny", "prompt": [7] * (CONTEXT + 1)}, 400)
        elif which == 1:
            self.post("/v1/completions", {"model": self.text(9) + "?", "prompt": "x"}, 404)
        elif which == 2:
            self.post("/v1/chat/completions", {"messages": [{"role": 7}]}, 400)
        elif which == 3:
            assert self.http.post("/v1/completions", content="{" * self.rng.randrange(1, 999)).status_code == 400
        else:
            assert self.http.get("/" + self.text(20).replace(" ", "-")).status_code == 404

    def embeds(self) -> None:
        assert len(self.post("/v1/embeddings", {"model": "tiny", "input": [self.text(), self.text()]})["data"]) == 2

    def responds(self) -> None:
        """Continues a response, and has both forgotten."""
        first = self.post("/v1/responses", {"model": "actor", "input": self.text(50)})
        second = self.post("/v1/responses", {"model": "actor", "input": "more", "previous_response_id": first["id"]})
        for made in first, second:
            assert self.http.delete(f"/v1/responses/{made['id']}").status_code == 200

    def speaks_other_dialects(self) -> None:
        messages = [{"role": "user", "content": self.text(50)}]
        body = {"model": "actor", "messages": messages, "stream": self.rng.random() < 0.5}
        for path, more in ("/v1/messages", {"max_tokens": 20}), ("/api/chat", {}):
            got = self.http.post(path, json=body | more)
            assert got.status_code == 200 and "Hello" in got.text.replace('"}}', ""), got.text[:500]


@dataclass(frozen=True)
class State:
    """What a server holds on to while nobody asks for anything."""

    tasks: float
    files: list[int]  # of its processes
    memory: list[int]  # resident bytes of each


def state(live: Live) -> State:
    """As of now; fails if somebody is still served."""
    for name in ("num_requests_running", "num_requests_waiting", "kv_pages_held"):
        live.until(name, 0)
    children = Path(f"/proc/{live.process.pid}/task/{live.process.pid}/children").read_text().split()
    pids = [live.process.pid, *map(int, children)]
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    tasks = live.metric("server_tasks")
    time.sleep(6)  # idle connections are closed after five seconds
    files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
    return State(tasks, files, [n * os.sysconf("SC_PAGE_SIZE") for n in pages])


def burst(live: Live, seconds: float, seed: int) -> Counter[str]:
    """All clients for so long; what they did."""
    clients = [Client(live, seed + i) for i in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for ended in [pool.submit(c.run, seconds) for c in clients]:
            ended.result()
    for client in clients:
        client.http.close()
    return sum((c.done for c in clients), Counter())


def every_slot_is_there(live: Live) -> None:
    """As many requests as there are slots run at the same time."""
    body = {"model": "tiny", "prompt": "x", "max_tokens": CONTEXT - 1, "ignore_eos": True, "stream": True}
    with httpx.Client(base_url=live.url, timeout=60) as http:
        streams = [http.stream("POST", "/v1/completions", json=body) for _ in range(SEQUENCES)]
        opened = [s.__enter__() for s in streams]
        live.until("num_requests_running", SEQUENCES)
        for got, stream in zip(opened, streams, strict=True):
            got.close()
            stream.__exit__(None, None, None)


def test_nothing_is_left_over(scripted_file: Path, model: Path) -> None:
    flags = ("--alias", "actor", "--sequences", str(SEQUENCES), "--ctx", str(CONTEXT), "--max-queue", "99")
    with serving(scripted_file, model, flags=flags) as live:
        burst(live, SECONDS * 0.4, 0)
        every_slot_is_there(live)
        before = state(live)
        done = burst(live, SECONDS * 0.6, 1000)
        assert len(done) == 9 and min(done.values()) > 0, done
        every_slot_is_there(live)
        after = state(live)
        print(f"soak: {sum(done.values())} requests, {before} -> {after}")
        assert live.metric("engine_restarts_total") == 0
        assert not [line for line in live.lines if "Traceback" in line or "unexpected error" in line]
        assert after.tasks == before.tasks
        assert after.files == before.files
        for was, now in zip(before.memory, after.memory, strict=True):
            assert now <= was * 1.02, (before, after)
