"""A tiny random model over a real byte-pair vocabulary (merges learned here from a few lines): grammars work on its tokens."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

import models.zoo  # noqa: F401  (fills VARIANTS)
from models.tiny import VARIANTS, Tiny
from tensormill.gguf import GGUFWriter
from tensormill.tokenizer import Tokenizer
from tensormill.tokenizer.bpe import BYTE_ALPHABET

CONTROLS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>"]
USERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
TEXT = """{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}} [true, false, null, 1.5, -20]
The weather in the north is cold, and the answer to all of this is in the text that they wrote. "a", "b", "kind":"x",
tool call name arguments parameters function because {"type": "object"} können größer naïve 日本語 🦙"""


@cache
def merges(count: int = 160) -> tuple[tuple[str, str], ...]:
    """The `count` most frequent pairs, one after another, as byte-pair encoding learns them."""
    words = [[BYTE_ALPHABET[b] for b in word.encode()] for word in TEXT.replace(" ", "\0 ").split("\0")]
    made: list[tuple[str, str]] = []
    while len(made) < count:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        made.append(best)
        words = [_joined(word, best) for word in words]
    return tuple(made)


def _joined(word: list[str], pair: tuple[str, str]) -> list[str]:
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


@cache
def keys() -> dict[str, object]:
    """The vocabulary, as a file states it."""
    tokens = list(dict.fromkeys([*BYTE_ALPHABET, *(a + b for a, b in merges())]))
    kinds = [1] * len(tokens) + [3] * len(CONTROLS) + [4] * len(USERS)
    tokens += [*CONTROLS, *USERS]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges()],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.ggml.bos_token_id": tokens.index("<|endoftext|>"),
    }


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(keys())


def write(path: Path, extra: int = 5) -> Path:
    """A llama whose head has `extra` rows more than there are tokens, as many files do."""
    made = Tiny("llama", 11, L=2, V=tokenizer().n_vocab + extra)
    VARIANTS["llama"].build(made)
    writer = GGUFWriter(path)
    writer.add("general.architecture", made.arch)
    for key, value in (keys() | made.keys).items():
        writer.add(key, value)
    for name, data in made.tensors.items():
        writer.add_tensor(name, data)
    writer.write()
    return path
