"""Batch invariance on the CPU: a request's logits have the same bits whatever its chunks, threads and neighbours.

Tiny models of every architecture in float32 and in every weight type, and a real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import models.zoo  # noqa: F401  (fills VARIANTS)
from engine import isa_bits
from engine.tiny_engine import answers, ask, load, told, write
from models import tiny
from models.quantised import TYPES
from models.real import PROMPTS, path_of
from tensormill.config import EngineConfig, SamplingConfig
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Generate, Output
from tensormill.gguf import GGMLType

ROOT = Path(__file__).parents[2]
LENGTH = 150  # more than two pages, beyond every window
MIXES = {"f32": (), "legacy": TYPES[2:7], "k": (*TYPES[7:12], GGMLType.Q8_0), "all": (*TYPES, GGMLType.F32)}
MODELS = [(v, m) for v in tiny.VARIANTS for m in (("f32", "all") if "lite" not in v else ("all",))]
MODELS += [("llama", "legacy"), ("llama", "k"), ("qwen35", "k"), ("gemma3", "legacy")]
PROMPT = [int(t) for t in tiny.tokens("llama", LENGTH)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(params=MODELS, ids="-".join, scope="module")
def path(request: pytest.FixtureRequest, folder: Path) -> Path:
    variant, mix = request.param
    return write(variant, folder / f"{variant}-{mix}", kinds=MIXES[mix])


def open_engine(path: Path, **config: object) -> Engine:
    return load(path, **{"backend": "cpu", "threads": 1, "chunk": 512, "context": 512, "kv_type": "f16"} | config)


def fed(path: Path, chunk: int, tokens: list[int] = PROMPT, **config: object) -> np.ndarray:
    """Bits [n, V] of the logits after each token."""
    with open_engine(path, chunk=chunk, rows=chunk, **config) as engine:
        return engine.session().logits(tokens).view(np.int32)


@cache
def whole(path: Path) -> np.ndarray:
    """Bits of one step with all tokens on one thread; what all others must equal."""
    bits = fed(path, 512)
    logits = bits.view(np.float32)
    assert np.isfinite(logits).all() and np.ptp(logits, axis=1).min() > 0.1, "not a model that could show a difference"
    return bits


@pytest.mark.parametrize(("chunk", "threads"), [(1, 1), (7, 2), (64, 2), (512, 2), (64, 1)])
def test_chunks_and_threads(path: Path, chunk: int, threads: int) -> None:
    np.testing.assert_array_equal(fed(path, chunk, threads=threads), whole(path))


def test_kv_types_too(path: Path) -> None:
    np.testing.assert_array_equal(fed(path, 512, kv_type="f32"), fed(path, 9, kv_type="f32", threads=2))


def test_beside_others(path: Path) -> None:
    """In a crank: the first token's log-probability after each prompt is that of the prompt alone, bit for bit."""
    ends = (1, 2, 31, 64, 65, 100, 149, 150)
    requests = [ask(f"{n}", PROMPT[:n], max_tokens=6) for n in ends]
    with open_engine(path, sequences=8, chunk=40, threads=2) as engine:
        together = answers(Crank(engine), requests, late=3)
    truth = whole(path).view(np.float32)
    for n, request in zip(ends, requests, strict=True):
        tokens, chances, _ = told(together[request.id])
        row = truth[n - 1]
        assert tokens[0] == row.argmax()
        shifted = row - row.max()
        assert chances[0] == (tokens[0], float((shifted - np.log(np.exp(shifted).sum()))[tokens[0]]))
    with open_engine(path) as engine:
        for request in requests:
            assert told(answers(Crank(engine), [request])[request.id]) == told(together[request.id])


@pytest.mark.slow
@pytest.mark.parametrize("other", ["avx2", "amx-emulated"])
def test_instruction_sets(folder: Path, other: str) -> None:
    """All sets share one arithmetic for every weight type (ops/test_cpu_isa.py has models in float32)."""
    paths = [write(v, folder / f"{v}-{m}", kinds=MIXES[m]) for v, m in MODELS if m != "f32"]
    made = {isa: run_isa(isa, folder / f"{isa}.npz", paths) for isa in ("avx512", other)}
    for name, bits in made[other].items():
        np.testing.assert_array_equal(bits, made["avx512"][name], err_msg=name)


def run_isa(isa: str, out: Path, paths: list[Path]) -> dict[str, np.ndarray]:
    env = os.environ | {"TENSORMILL_ISA": isa, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    words = [sys.executable, isa_bits.__file__, str(out), *map(str, paths)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if "TENSORMILL_ISA asks for" in done.stderr and "sums are not those" not in done.stderr:
        pytest.skip(f"no {isa} here")
    assert done.returncode == 0, done.stderr
    with np.load(out) as saved:
        return {name: logits.view(np.int32) for name, logits in saved.items()}


# ---- a real model ----


@pytest.fixture(scope="module")
def real() -> Path:
    path = path_of("smollm2-135m")
    if not path.exists():
        pytest.skip(f"{path} is not there: run `make models`")
    return path


def real_engine(path: Path, **config: object) -> Engine:
    settings = {"context": 1024, "chunk": 512, "threads": 2} | config
    return Engine.load(path, EngineConfig(**settings))


def real_prompt(engine: Engine) -> list[int]:
    return engine.tokenizer.encode(" ".join(PROMPTS) * 3)[:LENGTH]


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(("chunk", "threads"), [(1, 2), (7, 2), (64, 1), (512, 2)])
def test_a_real_model_in_chunks(real: Path, chunk: int, threads: int) -> None:
    with real_engine(real, chunk=chunk, rows=chunk, threads=threads) as engine:
        prompt = real_prompt(engine)
        got = engine.session().logits(prompt)[:, ::7].view(np.int32)
    np.testing.assert_array_equal(got, _real_bits(real))


@cache
def _real_bits(real: Path) -> np.ndarray:
    with real_engine(real, rows=512, threads=1) as engine:
        return engine.session().logits(real_prompt(engine))[:, ::7].view(np.int32)


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model_beside_others(real: Path) -> None:
    sampling = SamplingConfig(temperature=0.8, seed=3, max_tokens=12)
    with real_engine(real, sequences=5, chunk=50) as engine:
        requests = [Generate(p, engine.tokenizer.encode(p), sampling, logprobs=0) for p in PROMPTS]
        together = answers(Crank(engine), requests, late=2)
    for request in requests:
        with real_engine(real, threads=1) as engine:
            outputs: dict[str, list[Output]] = answers(Crank(engine), [request])
        assert told(outputs[request.id]) == told(together[request.id])
