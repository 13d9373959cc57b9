"""`tensormill eval` for real, on a tiny model: numbers against those made by hand, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_driver import run, write_model

from models.driver import Driver
from tensormill.backends import reference
from tensormill.evals import log_softmax

TEXT = "It was the best of hops, it was the worst of hops. " * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "tiny.gguf")
    write_model(folder / "bos.gguf", tokenizer__ggml__add_bos_token=True)
    (folder / "text.txt").write_text(TEXT, "utf-8")
    return folder


def by_hand(path: Path, tokens: list[int], context: int, bos: int | None) -> list[float]:
    """−ln p of the scored tokens, from whole chunks on the reference backend."""
    losses = []
    with Driver(path, reference.compile, context) as driver:
        for at in range(0, len(tokens) - context + 1, context):
            part = [tokens[at] if bos is None else bos, *tokens[at + 1 : at + context]]
            logp = log_softmax(driver.feed(part, 0))
            losses += [-logp[i, part[i + 1]] for i in range(context // 2, context - 1)]
    return losses


@pytest.mark.parametrize(("name", "bos"), [("tiny", None), ("bos", 258)])
def test_perplexity(folder: Path, name: str, bos: int | None) -> None:
    model = folder / f"{name}.gguf"
    made = run(
        "eval", "ppl", model, "-f", folder / "text.txt", "--ctx", 64, "--kv-type", "f32", "--json", "--backend", "reference"
    )
    assert made.code == 0, made.err
    found = json.loads(made.out)
    ids = [int(t) for t in run("tokenize", model, "-f", folder / "text.txt", "--ids", "--no-special").out.split()]
    losses = by_hand(model, ids, 64, bos)
    assert (found["positions"], found["chunks"]) == (len(losses), len(losses) // 31) and found["chunks"] > 2
    assert found["ppl"][0] == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)


def test_divergence_from_the_dequantised_model_and_from_another(folder: Path) -> None:
    model, words = folder / "tiny.gguf", ("-f", folder / "text.txt", "--ctx", 64, "--kv-type", "f32", "--json", "--chunks", 2)
    itself = json.loads(run("eval", "kld", model, *words).out)
    assert (itself["positions"], itself["same_top"]) == (62, [1, 0]) and abs(itself["kl"][0]) < 1e-8
    other = json.loads(run("eval", "kld", model, *words, "--base", folder / "bos.gguf").out)
    assert other["kl"][0] < 1e-8  # the same weights
    text = run("eval", "kld", model, *[w for w in words if w != "--json"]).out
    assert "same_top" in text and "kl 99.9 %" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ppl", "MODEL", "-f", "absent.txt"), "cannot read absent.txt"),
        (("ppl", "MODEL", "-f", "TEXT", "--ctx", "512"), "one chunk needs 512"),
        (("ppl", "MODEL", "-f", "TEXT", "--base", "x.gguf"), "--base belongs to kld"),
        (("ppl", "MODEL", "-f", "MODEL"), "is not UTF-8"),
        (("ppl", "MODEL", "-f", "TEXT", "--ctx", "64", "--chunks", "-1"), "--chunks must be 0 or more"),
        (("nothing", "MODEL", "-f", "TEXT"), "nothing"),
    ],
)
def test_what_it_refuses(folder: Path, words: tuple[str, ...], told: str) -> None:
    names = {"MODEL": folder / "tiny.gguf", "TEXT": folder / "text.txt"}
    made = run("eval", *(names.get(word, word) for word in words))
    assert made.code == 2 and told in made.err and made.out == ""
