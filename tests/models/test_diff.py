"""`compare` against llama.cpp's nodes and against our own values: it is silent when they agree and names what was broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import models.zoo  # noqa: F401  fills VARIANTS
from models import tiny
from models.driver import Driver
from models.make_goldens import GOLDENS, TRACED, TRACED_TOKENS
from tensormill.backends import reference
from tensormill.errors import RequestError
from tensormill.program import Program, Value
from tensormill.program.diff import compare

Values = dict[str, np.ndarray]
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Values]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    tiny.write(TRACED, path)
    with Driver(path, reference.compile, TRACED_TOKENS) as driver:
        return driver.program, driver.values(tiny.tokens(TRACED, TRACED_TOKENS))


@pytest.fixture(scope="module")
def nodes() -> Values:
    with np.load(GOLDENS / "trace.npz") as saved:
        return dict(saved)


def broken_from(program: Program, values: Values, name: str) -> Values:
    """The values as if the op that makes `name` were wrong, and all that follows from it."""
    rng = np.random.default_rng(7)
    wrong: set[Value] = set()
    out = dict(values)
    for op in program.ops:
        for made in op.outputs:
            if made.name == name or wrong.intersection(op.values):
                wrong.add(made)
                if made.dtype == "f32":
                    out[made.name] = values[made.name] + rng.standard_normal(values[made.name].shape)
    return out


def test_llama_cpp_agrees_and_most_values_have_a_counterpart(run: tuple[Program, Values], nodes: Values) -> None:
    report = compare(*run, nodes, TRACED_TOKENS, TOLERANCE)
    assert report.departed is None, str(report)
    assert sum(distance <= TOLERANCE for distance, _ in report.nearest.values()) > 0.9 * len(report.nearest)
    assert report.nearest["blk.1.ffn_gate_exps"][1].split("|")[1] == "ffn_moe_gate-1"
    assert "no value departs" in str(report)


BROKEN = (
    "token_embd",
    "blk.0.attn_norm",
    "blk.0.rope",
    "blk.0.attention",
    "blk.0.add",
    "blk.1.ffn_gate_inp",
    "blk.1.mix",
    "output",
)


@pytest.mark.parametrize("name", BROKEN)
def test_the_broken_value_is_named(name: str, run: tuple[Program, Values], nodes: Values) -> None:
    program, values = run
    report = compare(program, broken_from(program, values, name), nodes, TRACED_TOKENS, TOLERANCE)
    assert report.departed == name, str(report)
    assert name in str(report)


def test_every_value_of_our_own_dump(run: tuple[Program, Values]) -> None:
    program, values = run
    assert compare(program, values, values, TRACED_TOKENS, 0.0).departed is None
    for name in (out.name for op in program.ops for out in op.outputs if out.dtype == "f32"):
        theirs = values | {name: np.full_like(values[name], np.nan)}
        report = compare(program, values, theirs, TRACED_TOKENS, 1e-6)
        assert report.nearest[name] == (np.inf, name)


def test_a_dump_of_something_else_is_refused(run: tuple[Program, Values]) -> None:
    with pytest.raises(RequestError, match="of this model"):
        compare(*run, {"00001|norm-0|MUL": np.zeros((3, 7))}, TRACED_TOKENS, TOLERANCE)


def test_goldens_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in Path(GOLDENS).rglob("*.npz")}
    assert sizes.pop("quantised.npz") <= 160_000  # 27 weight types in one file
    assert max(sizes.values()) <= 60_000
