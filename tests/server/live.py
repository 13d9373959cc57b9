"""A live server on loopback, in processes of its own, for black-box tests; a tiny random model with a byte vocabulary."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from models.tiny import Tiny
from tensormill.gguf import GGUFWriter
from unit.cli_driver import byte_tokens

SOURCES = Path(__file__).resolve().parents[2] / "src"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
CONTEXT = 8192
WIDTH = 64
ENDLESS = {"type": "array", "items": {"type": "boolean"}, "minItems": 1000}  # no answer of that form is over soon


def write_model(path: Path, seed: int = 5, lacks: str = "", **sizes: int) -> Path:
    """A llama of two blocks that knows bytes, two merges, ChatML's tokens and those for filling in the middle."""
    tokens = [*byte_tokens(), "Ġa", "he", *SPECIAL]
    tiny = Tiny("llama", seed, **{"V": len(tokens), "L": 2, "D": WIDTH, **sizes})
    tiny.start(rope__freq_base=10000.0, context_length=CONTEXT)
    for block in range(tiny.L):
        tiny.attention(f"blk.{block}.")
        tiny.ffn(f"blk.{block}.")
    tiny.end()
    tiny.tensors.pop(lacks, None)
    writer = GGUFWriter(path)
    ids = {f"{role}_token_id": tokens.index(f"<|fim_{name}|>") for role, name in _FIM}
    for key, value in {
        "general.architecture": "llama",
        "general.name": "tiny",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 258 + [3] * len(SPECIAL),
        "tokenizer.ggml.merges": ["Ġ a", "h e"],
        "tokenizer.ggml.bos_token_id": 258,
        "tokenizer.ggml.eos_token_id": 260,
        "tokenizer.ggml.add_bos_token": False,
        **{f"tokenizer.ggml.{k}": v for k, v in ids.items()},
        **tiny.keys,
    }.items():
        writer.add(key, value)
    for name, data in tiny.tensors.items():
        writer.add_tensor(name, data)
    writer.write()
    return path


_FIM = (("fim_pre", "prefix"), ("fim_suf", "suffix"), ("fim_mid", "middle"))


@dataclass
class Live:
    """A server that runs."""

    url: str
    process: subprocess.Popen[str]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=10000))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over its labels, as of now."""
        text = httpx.get(self.url + "/metrics", timeout=30, headers=self.headers).text
        wanted = [f'{k}="{v}"' for k, v in labels.items()]
        rows = re.findall(rf"^tensormill:{name}(?:{{(.*?)}})? (\S+)$", text, re.M)
        return sum(float(value) for found, value in rows if all(w in found for w in wanted))

    headers: dict[str, str] = field(default_factory=dict)

    def until(self, name: str, wanted: float, seconds: float = 20.0) -> None:
        """Wait for a metric to become a value."""
        end = time.monotonic() + seconds
        while (found := self.metric(name)) != wanted:
            assert time.monotonic() < end, f"{name} stays {found}, expected {wanted}"
            time.sleep(0.02)

    def engine_pid(self) -> int:
        """The engine process."""
        if not Path("/proc/self/task").exists():
            pytest.skip("needs /proc")
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = [int(c) for c in children if "tensormill.server.worker" in Path(f"/proc/{c}/cmdline").read_text()]
        assert len(found) == 1, found
        return found[0]


@contextmanager
def serving(
    *models: Path, flags: tuple[str, ...] = (), key: str = "", wait: bool = True, within: tuple[str, ...] = ()
) -> Iterator[Live]:
    """`tensormill serve` of models, from when it is ready until the block ends; `within`: a command that becomes another."""
    threads = () if "--threads" in flags else ("--threads", "1")
    program = (*within, sys.executable, "-m", "tensormill.cli.main")
    command = [*program, "serve", *map(str, models), "--port", "0", *threads, *flags]
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    live = Live("", process, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        assert process.stderr is not None
        for line in process.stderr:
            live.lines.append(line)
            if found := re.match(r"serving on (\S+)", line):
                live.url = found[1]
                break
        assert live.url, "".join(live.lines)
        reader = threading.Thread(target=lambda: live.lines.extend(process.stderr or ()), daemon=True)
        reader.start()
        end = time.monotonic() + 60
        while wait and httpx.get(live.url + "/health", timeout=30, verify=False).status_code != 200:
            assert time.monotonic() < end, "".join(live.lines)
            time.sleep(0.05)
        yield live
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
