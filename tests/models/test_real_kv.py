"""What rounding keys and values costs a real model on the CPU backend: KL divergence of the next token from pages in float32.

Even half precision differs by what int8 activations that round otherwise make of it, which is the floor of this measure.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from models.driver import Driver
from models.driver import backend as compile_of
from models.real import PROMPTS, path_of

NAME = "smollm2-135m"
GOLDENS = Path(__file__).parent.parent / "goldens" / "real" / f"{NAME}.npz"
BOUNDS = {"f16": 5e-3, "bf16": 6e-3, "q8_0": 8e-3, "q4_0": 0.25}  # mean, nats; measured 0.0037, 0.0031, 0.0042, 0.16

pytestmark = [pytest.mark.real, pytest.mark.slow]


@cache
def chances(kv_type: str) -> np.ndarray:
    """Log-probabilities [n, V] behind every token of the golden texts, one after another."""
    if not path_of(NAME).exists():
        pytest.skip(f"{path_of(NAME)} is not there: run `make models`")
    with np.load(GOLDENS) as golden:
        tokens = np.concatenate([golden[f"{part}{i}"] for i in range(len(PROMPTS)) for part in ("prompt", "made")])[:200]
    with Driver(path_of(NAME), compile_of("cpu"), 200, kv_type=kv_type) as driver:
        logits = np.array(driver.feed(tokens, 0), np.float64)
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


@pytest.mark.parametrize("kv_type", BOUNDS)
def test_the_distribution_stays_close(kv_type: str) -> None:
    exact, rounded = chances("f32"), chances(kv_type)
    kl = (np.exp(exact) * (exact - rounded)).sum(axis=1)
    assert 0 < kl.mean() < BOUNDS[kv_type], kl.mean()
