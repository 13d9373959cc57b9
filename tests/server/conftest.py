"""One server for all tests that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from server.live import Live, serving, write_model
from server.scripted import write_scripted


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes its time: a prompt of 6000 tokens is hundreds of steps, seconds in all."""
    return write_model(tmp_path_factory.mktemp("slow") / "slow.gguf", L=4, D=256, F=1024, H=16)


@pytest.fixture(scope="session")
def live(model: Path) -> Iterator[Live]:
    with serving(model, flags=("--alias", "short", "--chunk", "64")) as running:
        yield running


@pytest.fixture(scope="session")
def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def scripted_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scripted(tmp_path_factory.mktemp("scripted") / "scripted.gguf")


@pytest.fixture(scope="session")
def scripted(scripted_file: Path) -> Iterator[Live]:
    with serving(scripted_file, flags=("--alias", "actor", "--max-body", "200000")) as running:
        yield running


@pytest.fixture(scope="session")
def guarded(scripted_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The same model for those who have the key "open-sesame"; loaded when first used."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("somebody open-sesame\n")
    with serving(scripted_file, flags=("--api-key-file", str(keys), "--no-preload"), key="open-sesame", wait=False) as running:
        yield running
