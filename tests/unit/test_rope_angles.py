"""RoPE scaling resolved at trace time: frequencies against plain statements of each rule; odd tables and keys refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensormill.errors import ModelError
from tensormill.gguf import GGMLType, TensorInfo
from tensormill.models.blocks import rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, WeightSource

ROT = 16
PAIRS = np.arange(ROT // 2)
PLAIN = 10000.0 ** (-2 * PAIRS / ROT)


class Tables:
    """A file that has nothing but RoPE tables."""

    def __init__(self, tables: dict[str, np.ndarray]) -> None:
        self.tables = {name + ".weight": np.asarray(t, np.float32) for name, t in tables.items()}
        self.tensors = {n: TensorInfo(n, GGMLType.F32, t.shape, 0, t.nbytes) for n, t in self.tables.items()}

    def data(self, name: str) -> np.ndarray:
        return self.tables[name].view(np.uint8).reshape(-1, self.tables[name].shape[-1] * 4)

    def release(self, name: str) -> None:
        """Nothing is mapped."""


def resolved(context: int | None = None, tables: dict[str, Any] | None = None, **keys: object) -> tuple[np.ndarray, float]:
    """The frequencies and the magnitude of the traced op."""
    metadata: dict[str, object] = {"general.architecture": "a", "a.embedding_length": 64, "a.attention.head_count": 4}
    metadata |= {"a.context_length": 4096} | {"a." + k.replace("__", "."): v for k, v in keys.items()}
    file = Tables(tables or {})
    g = Tracer("main", file.tensors, source=WeightSource(file))
    rope.angles(g, Scope(g), Hyper(metadata, context=context))
    assert g.used == set(file.tensors)
    return g.ops[0].attrs["freq"], g.ops[0].attrs["mag"]


def test_without_scaling() -> None:
    freq, mag = resolved()
    np.testing.assert_allclose(freq, PLAIN, rtol=1e-6)
    assert mag == 1.0


@pytest.mark.parametrize("keys", [{"rope__scaling__factor": 4.0}, {"rope__scale_linear": 4.0}])
def test_linear(keys: dict[str, float]) -> None:
    np.testing.assert_allclose(resolved(**keys)[0], PLAIN / 4, rtol=1e-6)


def test_a_kind_of_none_and_a_factor_of_zero_change_nothing() -> None:
    np.testing.assert_allclose(resolved(rope__scaling__type="none", rope__scaling__factor=4.0)[0], PLAIN, rtol=1e-6)
    np.testing.assert_allclose(resolved(rope__scaling__factor=0.0)[0], PLAIN, rtol=1e-6)


def test_yarn_pair_by_pair() -> None:
    factor, original = 16.0, 512
    freq, mag = resolved(
        rope__scaling__type="yarn", rope__scaling__factor=factor, rope__scaling__original_context_length=original
    )
    low = math.floor(ROT * math.log(original / (32 * 2 * math.pi)) / (2 * math.log(10000)))
    high = math.ceil(ROT * math.log(original / (1 * 2 * math.pi)) / (2 * math.log(10000)))
    for i in PAIRS:
        kept = 1 - min(1, max(0, (i - max(low, 0)) / (high - max(low, 0))))
        assert freq[i] == pytest.approx(PLAIN[i] * (kept + (1 - kept) / factor), rel=1e-6)
    assert mag == pytest.approx(1 + 0.1 * math.log(factor))


def test_yarn_with_a_log_multiplier_scales_by_the_quotient() -> None:
    keys = {"rope__scaling__type": "yarn", "rope__scaling__factor": 40.0, "rope__scaling__original_context_length": 512}
    _, mag = resolved(**keys, rope__scaling__yarn_log_multiplier=0.07, rope__scaling__attn_factor=2.0)
    assert mag == pytest.approx(2 * (1 + 0.1 * math.log(40)) / (1 + 0.07 * math.log(40)))


def test_tables_divide() -> None:
    table = np.linspace(1, 32, ROT // 2)
    np.testing.assert_allclose(resolved(tables={"rope_freqs": table})[0], PLAIN / table, rtol=1e-6)


@pytest.mark.parametrize(("context", "which"), [(None, "long"), (2048, "short"), (2049, "long"), (100, "short")])
def test_long_and_short_factors_follow_the_context_in_use(context: int | None, which: str) -> None:
    tables = {"rope_factors_long": np.full(ROT // 2, 7.0), "rope_factors_short": np.full(ROT // 2, 3.0)}
    keys = {"rope__scaling__type": "longrope", "rope__scaling__original_context_length": 2048}
    freq, mag = resolved(context, tables, **keys, rope__scaling__attn_factor=1.19)
    np.testing.assert_allclose(freq, PLAIN / {"long": 7.0, "short": 3.0}[which], rtol=1e-6)
    assert mag == pytest.approx(1.19)


@pytest.mark.parametrize("table", [np.ones(3), np.zeros(ROT // 2), np.full(ROT // 2, np.nan), np.ones((2, ROT // 4))])
def test_an_odd_table_is_refused(table: np.ndarray) -> None:
    with pytest.raises(ModelError, match=r"rope_freqs\.weight is .*; expected 8 numbers above 0"):
        resolved(tables={"rope_freqs": table})


@pytest.mark.parametrize(
    ("key", "odd"),
    [
        ("rope.scaling.type", "dynamic"), ("rope.scaling.factor", -1.0), ("rope.freq_base", 0.0), ("rope.dimension_count", 5),
        ("rope.scaling.factor", float("inf")), ("rope.scaling.type", 3),
    ],
)  # fmt: skip
def test_an_odd_key_is_refused(key: str, odd: object) -> None:
    with pytest.raises(ModelError, match=rf"a\.{key} is {odd!r}; expected "):
        resolved(**{key.replace(".", "__"): odd})
