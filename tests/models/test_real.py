"""Real models on the reference backend against llama.cpp running the same weights expanded to float32.

Greedy tokens are compared with the golden's tokens as input, so that one near tie does not hide all that follows: a choice may
differ only where llama.cpp's two best logits lie closer than twice the error allowed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from models.driver import Driver
from models.real import MODELS, PROMPTS, path_of
from tensormill.backends import reference

GOLDENS = Path(__file__).parent.parent / "goldens" / "real"
TOLERANCE = 1e-4  # of the range of the row's logits
# ggml computes GELU through a half-precision table, on the CPU; ours is exact. That costs 2e-4 of the range here.
TOLERANCE_OF = {"gemma3-270m": 5e-4}
LONGEST = 128

pytestmark = [pytest.mark.real, pytest.mark.slow]


@cache
def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDENS / f"{name}.npz") as saved:
        return dict(saved)


@cache
def logits(name: str) -> list[np.ndarray]:
    """Our logits [n, V] of each prompt with the golden's tokens behind it."""
    if not path_of(name).exists():
        pytest.skip(f"{path_of(name)} is not there: run `make models`")
    with Driver(path_of(name), reference.compile, LONGEST) as driver:
        return [driver.feed(np.concatenate([p, m]), 0) for p, m in (sequence(name, i) for i in range(len(PROMPTS)))]


def sequence(name: str, i: int) -> tuple[np.ndarray, np.ndarray]:
    return golden(name)[f"prompt{i}"], golden(name)[f"made{i}"]


def tolerance(name: str) -> float:
    return TOLERANCE_OF.get(name, TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_distributions(name: str) -> None:
    want = golden(name)
    for i, got in enumerate(logits(name)):
        rows = got[want[f"rows{i}"]]
        best = np.take_along_axis(rows, want[f"best{i}"], axis=1)
        error = np.abs(best - want[f"logits{i}"]).max(axis=1) / want[f"spread{i}"]
        lse = np.logaddexp.reduce(rows.astype(np.float64), axis=1)
        off = np.abs(lse - want[f"lse{i}"]) / want[f"spread{i}"]
        assert error.max() <= tolerance(name) and off.max() <= tolerance(name), (i, error, off)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_choices(name: str) -> None:
    for i, got in enumerate(logits(name)):
        prompt, made = sequence(name, i)
        rows = got[len(prompt) - 1 : -1]
        near = golden(name)[f"margin{i}"] <= 2 * tolerance(name) * np.ptp(rows, axis=1)
        assert np.array_equal(rows.argmax(axis=1)[~near], made[~near]), i
        assert near.mean() < 0.1
