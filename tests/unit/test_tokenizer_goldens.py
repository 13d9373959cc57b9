"""Ids equal llama.cpp's: made-up vocabularies of every kind and pre-tokenizer always, real ones where they are present."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fetch_vocabs
import get_models
from tensormill.gguf import GGUFFile
from tensormill.tokenizer import Tokenizer
from tensormill.tokenizer.pre import FAMILIES, stages_in_use
from tokenizer_goldens import FOLDER, failures
from tokenizer_synthetic import ENDINGS, OTHERS, byte_pairs, endings

SYNTHETIC = np.load(FOLDER / "synthetic.npz")
REAL = sorted(p.stem for p in FOLDER.glob("*.npz") if p.stem != "synthetic")


def _telling_names() -> list[str]:
    """One name a family, and each further one for which llama.cpp gives other ids (specials that strip, say)."""
    first = {rules: name for name, rules in stages_in_use()}
    return [
        name
        for name, rules in FAMILIES.items()
        if name == first[rules] or not np.array_equal(SYNTHETIC[f"pre:{name}"], SYNTHETIC[f"pre:{first[rules]}"])
    ]


def _encode(tokenizer: Tokenizer):
    return lambda text, special: tokenizer.encode(text, add_special=special, parse_special=special)


@pytest.mark.parametrize("pre", _telling_names())
def test_every_pre_tokenizer_cuts_as_llama_cpp(pre):
    tokenizer = Tokenizer.from_metadata(byte_pairs(pre))
    assert failures(_encode(tokenizer), {"crc": SYNTHETIC[f"pre:{pre}"]}) == []


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_equal_llama_cpp(name):
    tokenizer = Tokenizer.from_metadata(OTHERS[name]())
    assert failures(_encode(tokenizer), {"crc": SYNTHETIC[name]}) == []


@pytest.mark.parametrize("name", ENDINGS)
def test_answers_end_where_llama_cpp_ends_them(name):
    expected = json.loads((FOLDER / "endings.json").read_text())[name]
    tokenizer = Tokenizer.from_metadata(endings(name))
    assert sorted(tokenizer.tokens[i] for i in tokenizer.end_ids) == sorted(expected)


def _path(stem: str) -> Path | None:
    folders = (Path(fetch_vocabs.DEFAULT_DIR), get_models.directory())
    return next((p for f in folders if (p := f / f"{stem}.gguf").exists()), None)


@pytest.mark.parametrize("stem", REAL)
def test_real_vocabulary_equals_llama_cpp(stem):
    path = _path(stem)
    if path is None:
        pytest.skip(fetch_vocabs.HINT if stem.startswith("ggml-vocab-") else "the model is missing: `make models`")
    golden = np.load(FOLDER / f"{stem}.npz")
    with GGUFFile(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    assert failures(_encode(tokenizer), golden) == []
    assert sorted(tokenizer.end_ids) == golden["stops"].tolist()
