"""Every architecture's tiny models against llama.cpp's logits: whole, chunked and token by token, on every backend."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import models.zoo  # noqa: F401  fills VARIANTS
from models import tiny
from models.driver import Compile, Driver, backend

GOLDENS = Path(__file__).parent.parent / "goldens"
TOLERANCE = 1e-4  # of the range of the golden's logits
CHUNKS = (tiny.TOKENS, 64, 7, 1)


@pytest.fixture(params=["reference", "cpu"])
def compile(request: pytest.FixtureRequest) -> Compile:
    """A backend's compile."""
    return backend(request.param)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every tiny model, written now."""
    folder = tmp_path_factory.mktemp("tiny")
    for name in tiny.VARIANTS:
        tiny.write(name, folder / f"{name}.gguf")
    return folder


@cache
def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDENS / f"{name}.npz") as saved:
        return dict(saved)


@pytest.mark.parametrize("name", tiny.VARIANTS)
def test_the_file_is_the_one_the_golden_was_made_of(name: str, tmp_path: Path) -> None:
    sha = tiny.write(name, tmp_path / "tiny.gguf")
    assert sha == str(golden(name)["sha256"]), "the writer, NumPy's generator or the model changed: make the goldens again"
    assert np.array_equal(tiny.tokens(name), golden(name)["tokens"])


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", tiny.VARIANTS)
def test_logits_are_those_of_llama_cpp(name: str, chunk: int, compile: Compile, files: Path) -> None:
    want = golden(name)
    with Driver(files / f"{name}.gguf", compile, chunk) as driver:
        got = driver.logits(want["tokens"], chunk)
    spread = float(np.ptp(want["logits"]))
    error = np.abs(got[want["rows"]] - want["logits"]).max(axis=1) / spread
    worst = int(error.argmax())
    assert error[worst] <= TOLERANCE, f"row {want['rows'][worst]}: off by {error[worst]:.2e} of the range {spread:.3g}"
