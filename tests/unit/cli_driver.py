"""Runs the real command in a process of its own, on a tiny model with a byte vocabulary and random weights."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from models.tiny import Tiny
from tensormill.gguf import GGUFWriter

SOURCES = Path(__file__).resolve().parents[2] / "src"
COMMAND = [sys.executable, "-m", "tensormill.cli.main"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCES), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
MERGED = ["Ġa", "he"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def run(*words: object, stdin: str = "", home: Path | None = None) -> Done:
    """`tensormill words`, waited for; with `home` as the home directory."""
    environment = ENVIRONMENT | ({"HOME": str(home)} if home else {})
    made = subprocess.run(
        [*COMMAND, *map(str, words)], input=stdin, capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    return Done(made.returncode, made.stdout, made.stderr)


def byte_tokens() -> list[str]:
    """The 256 tokens of a byte-level vocabulary: printable bytes as themselves, others from U+0100 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def write_model(path: Path, **keys: object) -> Path:
    """A llama of two blocks that knows bytes and ChatML's tokens; `keys` are added (`__` stands for a dot)."""
    tokens = [*byte_tokens(), *MERGED, *SPECIAL]
    tiny = Tiny("llama", 5, V=len(tokens), L=2)
    tiny.start(rope__freq_base=10000.0, context_length=8192)
    for block in range(tiny.L):
        tiny.attention(f"blk.{block}.")
        tiny.ffn(f"blk.{block}.")
    tiny.end()
    writer = GGUFWriter(path)
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
        **tiny.keys,
        **{key.replace("__", "."): value for key, value in keys.items()},
    }.items():
        writer.add(key, value)
    for name, data in tiny.tensors.items():
        writer.add_tensor(name, data)
    writer.write()
    return path
