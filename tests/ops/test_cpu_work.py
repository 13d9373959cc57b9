"""The work of native records adds up to what the program costs, whatever was fused, split by type or quantised first."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.tiny_engine import load, write
from tensormill.backends.cpu.executable import OFFERS
from tensormill.backends.cpu.limits import dot_rate, fma_rate, pair_rate, read_rate
from tensormill.gguf import GGMLType
from tensormill.program.cost import Sizes, total
from tensormill.program.passes import prepare


@pytest.mark.parametrize("variant", ["llama", "qwen3moe", "gemma3", "qwen35"])
@pytest.mark.parametrize("tokens", [1, 7])
def test_records_add_up_to_the_program(variant: str, tokens: int, tmp_path: Path) -> None:
    kinds = [GGMLType.Q4_K, GGMLType.Q8_0, GGMLType.F16]
    with load(write(variant, tmp_path / "m.gguf", kinds=kinds), backend="cpu", kv_type="f16") as engine:
        sizes = Sizes(tokens=tokens, rows=40)
        works, whole = engine.executable.work(sizes), total(prepare(engine.program, OFFERS), sizes)
        assert len(works) == len(engine.executable.times())
        assert sum(w.weights for w in works) == pytest.approx(whole.weights, rel=1e-3)
        assert sum(w.caches for w in works) == pytest.approx(whole.caches)
        assert sum(w.operations for w in works) == pytest.approx(whole.flops, rel=0.02)
        types = {reads: {t for w in works if w.reads == reads for t in w.types.split("+")} for reads in ("codes", "words")}
        assert {"Q4_K", "Q8_0"} <= types["codes"]
        assert types["words"] == {"F16", ""}  # attention has no weights


def test_limits_are_of_this_world() -> None:
    assert 1e8 < read_rate(1 << 20, 1) < 1e13
    assert read_rate(1 << 20, 1) > 0.9 * read_rate(1 << 28, 1)
    assert 1e8 < fma_rate(1) < dot_rate(1) < 1e14
    assert 1e8 < pair_rate(1) < dot_rate(1)
