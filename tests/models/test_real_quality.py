"""Real quantised files: the CPU backend is no farther from the dequantised model than llama.cpp, and agrees with it as often.

KL divergence and likeliest tokens at every position of five prompts and their answers; goldens have llama.cpp's on the same
file. Most weights of these files are of types whose activations both engines round alike, so chance has a part: up to two
standard errors (of paired means over positions) are a tie. docs/benchmarks/quality.md has a longer text.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from models.driver import Driver
from models.real import MODELS, PROMPTS, path_of
from models.test_real import GOLDENS, LONGEST, logits, sequence
from tensormill.backends import cpu
from tensormill.evals import Divergence

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.parametrize("name", MODELS)]


@cache
def golden(name: str) -> tuple[np.ndarray, np.ndarray]:
    """llama.cpp's KL divergences, and where its likeliest token is the true one."""
    with np.load(GOLDENS / "quality.npz") as saved:
        assert path_of(name).stat().st_size == saved[f"{name}.bytes"], "another file: make the goldens again"
        return saved[f"{name}.kl"].astype(np.float64), saved[f"{name}.same"]


@cache
def ours(name: str) -> Divergence:
    if not path_of(name).exists():
        pytest.skip(f"{path_of(name)} is not there: run `make models`")
    found = Divergence()
    base = logits(name, "reference")
    with Driver(path_of(name), cpu.compile, LONGEST) as driver:
        for i in range(len(PROMPTS)):
            found.add(base[i], driver.feed(np.concatenate(sequence(name, i)), 0))
    return found


def error(paired: np.ndarray) -> float:
    return float(paired.std(ddof=1) / len(paired) ** 0.5)


def test_divergence(name: str) -> None:
    kl, (its, _) = ours(name).kl, golden(name)
    ratio = kl.mean() / its.mean()
    assert len(kl) > 256
    assert ratio <= 1 + 2 * error(kl - ratio * its) / its.mean(), f"KL {kl.mean():.5f}, llama.cpp {its.mean():.5f}"


def test_likeliest_token(name: str) -> None:
    same, (_, its) = ours(name).same_top, golden(name)
    less = its.astype(float) - same
    assert less.mean() <= 2 * error(less), f"same top {same.mean():.2%}, llama.cpp {its.mean():.2%}"
