"""Greedy text of real models, weights expanded to float32, against llama.cpp on the same: 64 tokens, 5 prompts, CPU backend.

Goldens and the rule of near ties are those of `test_real.py`. There the CPU backend runs the quantised file and rounds
activations; here nothing is rounded, so its kernels must come as near as the reference does.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from models.driver import Driver
from models.expanded import expand
from models.real import MODELS, PROMPTS, path_of
from models.test_real import LONGEST, REFERENCE, golden, sequence
from tensormill.backends import cpu

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.parametrize("name", MODELS)]


@cache
def logits(name: str) -> list[np.ndarray]:
    """Logits [n, V] of each prompt with the golden's tokens behind it."""
    if not path_of(name).exists():
        pytest.skip(f"{path_of(name)} is not there: run `make models`")
    with tempfile.TemporaryDirectory() as folder:
        path = expand(path_of(name), Path(folder) / "f32.gguf")
        with Driver(path, cpu.compile, LONGEST) as driver:
            return [driver.feed(np.concatenate(sequence(name, i)), 0) for i in range(len(PROMPTS))]


def margins(rows: np.ndarray) -> np.ndarray:
    """How far the best logit of each row is above the next."""
    two = np.partition(rows, -2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


def test_logits(name: str) -> None:
    for i, got in enumerate(logits(name)):
        want = golden(name)
        best = np.take_along_axis(got[want[f"rows{i}"]], want[f"best{i}"], axis=1)
        error = np.abs(best - want[f"logits{i}"]).max(axis=1) / want[f"spread{i}"]
        assert error.max() <= REFERENCE[name], (i, error)


def test_greedy_choices(name: str) -> None:
    """Equal, or both engines are in doubt: the two best logits lie closer than twice the error allowed, in both."""
    for i, got in enumerate(logits(name)):
        prompt, made = sequence(name, i)
        rows = got[len(prompt) - 1 : -1]
        assert len(made) == 64
        bound = 2 * REFERENCE[name] * np.ptp(rows, axis=1)
        mine, its = margins(rows), golden(name)[f"margin{i}"]
        other = np.flatnonzero(rows.argmax(axis=1) != made)
        told = [f"token {t}: margins {mine[t]:.3g} and {its[t]:.3g}, near below {bound[t]:.3g}" for t in other]
        assert (its[other] <= bound[other]).all() and (mine[other] <= bound[other]).all(), told
