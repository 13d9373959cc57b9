"""Real models against llama.cpp running the same weights expanded to float32: the reference closely, the CPU kernels as near
as int8 activations allow.

Greedy tokens are compared with the golden's tokens as input, so that one near tie does not hide all that follows: a choice may
differ only where llama.cpp's two best logits lie closer together than errors can be.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from models.driver import Driver
from models.driver import backend as compile_of
from models.real import MODELS, PROMPTS, path_of

GOLDENS = Path(__file__).parent.parent / "goldens" / "real"
# Largest error of a logit, and largest margin at which a choice may differ; of the range of the row's logits.
# ggml computes GELU through a half-precision table on the CPU, ours is exact: that costs gemma3 2e-4.
# The CPU backend rounds activations to int8 (as llama.cpp does on quantised files) and keeps keys and values in half precision.
REFERENCE = {"smollm2-135m": 1e-4, "gemma3-270m": 5e-4, "qwen2.5-coder-0.5b": 1e-4}
CPU_ERROR, CPU_MARGIN = 0.03, 0.01  # the largest seen: 0.0253, one row of fifteen, on SmolLM2's Q4_1
LONGEST = 128

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.parametrize("name", MODELS)]
BACKENDS = pytest.mark.parametrize("backend", ["reference", "cpu"])


@cache
def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDENS / f"{name}.npz") as saved:
        return dict(saved)


@cache
def logits(name: str, backend: str) -> list[np.ndarray]:
    """Our logits [n, V] of each prompt with the golden's tokens behind it."""
    if not path_of(name).exists():
        pytest.skip(f"{path_of(name)} is not there: run `make models`")
    kv = "f32" if backend == "reference" else "f16"
    with Driver(path_of(name), compile_of(backend), LONGEST, kv_type=kv) as driver:
        return [driver.feed(np.concatenate(sequence(name, i)), 0) for i in range(len(PROMPTS))]


def sequence(name: str, i: int) -> tuple[np.ndarray, np.ndarray]:
    return golden(name)[f"prompt{i}"], golden(name)[f"made{i}"]


@BACKENDS
def test_distributions(name: str, backend: str) -> None:
    want = golden(name)
    bound = REFERENCE[name] if backend == "reference" else CPU_ERROR
    for i, got in enumerate(logits(name, backend)):
        rows = got[want[f"rows{i}"]]
        best = np.take_along_axis(rows, want[f"best{i}"], axis=1)
        error = np.abs(best - want[f"logits{i}"]).max(axis=1) / want[f"spread{i}"]
        lse = np.logaddexp.reduce(rows.astype(np.float64), axis=1)
        off = np.abs(lse - want[f"lse{i}"]) / want[f"spread{i}"]
        assert error.max() <= bound and off.max() <= bound, (i, error, off)


@BACKENDS
def test_greedy_choices(name: str, backend: str) -> None:
    bound = 2 * REFERENCE[name] if backend == "reference" else CPU_MARGIN
    for i, got in enumerate(logits(name, backend)):
        prompt, made = sequence(name, i)
        rows = got[len(prompt) - 1 : -1]
        differ = rows.argmax(axis=1) != made
        margin = golden(name)[f"margin{i}"] / np.ptp(rows, axis=1)
        assert (margin[differ] <= bound).all(), (i, margin[differ])
        assert differ.mean() <= 0.1
