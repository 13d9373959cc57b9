"""Grammars in real vocabularies of every kind: whatever a mask lets through can be taken, and the whole matches."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from tensormill.gguf import GGUFFile
from tensormill.sampling.grammar import Grammars
from tensormill.tokenizer import Tokenizer

VOCABULARIES = sorted(Path.home().glob(".cache/tensormill/test-vocabs/ggml-vocab-*.gguf"))
NAMES = ("llama-spm", "phi-3", "gemma-4", "qwen2", "llama-bpe", "deepseek-llm", "command-r", "baichuan", "falcon")
REGEX = r"xx (hello worldwide|naïve ☔)  [0-9]{2}\n</end>"
SCHEMA = {
    "type": "object",
    "properties": {"naïve name": {"enum": ["a b", "☔"]}, "n": {"type": "boolean"}},
    "required": ["naïve name", "n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("path", [p for p in VOCABULARIES if p.stem.removeprefix("ggml-vocab-") in NAMES], ids=lambda p: p.stem)
def test_a_walk_through_masks_matches(path: Path) -> None:
    with GGUFFile(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    grammars = Grammars(tokenizer)
    choose = random.Random(4)
    for kind, text in (("regex", REGEX), ("json_schema", json.dumps(SCHEMA))):
        for _ in range(3):
            matcher, made = grammars.compile(kind, text), b""
            while not matcher.closed:
                allowed = [i for i in np.flatnonzero(matcher.allowed(tokenizer.n_vocab)) if i not in tokenizer.end_ids]
                if not allowed:
                    break
                forced = matcher.forced()
                assert forced[:1] in ([], [allowed[0]]) or forced[0] in allowed
                token = int(choose.choice(allowed))
                matcher.accept(token)
                made += tokenizer.piece(token)
            matcher.end()
            if kind == "regex":
                assert re.fullmatch(REGEX, made.decode())
            else:
                assert json.loads(made)["naïve name"] in ("a b", "☔")


@pytest.mark.parametrize("path", VOCABULARIES, ids=lambda p: p.stem)
def test_any_bytes_can_be_spelled(path: Path) -> None:
    with GGUFFile(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    if "bert" in path.stem:
        return  # no bytes in its vocabulary
    for text in (b"x", b" x", b'{"a": 1}', "naïve ☔".encode(), "☔".encode()[:2], b"\x94\n x  y", b"<s></s>"):
        assert b"".join(map(tokenizer.piece, tokenizer.spelled(text))) == text
