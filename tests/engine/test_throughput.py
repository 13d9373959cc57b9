"""What `bench` times: the tokens of the test alone, at its depth, which is computed once as far as a model can go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.tiny_engine import load, write
from tensormill.evals.throughput import Workload, rate
from tensormill.program import Run

DEPTH = 150  # two pages of 64, and a part of the third


@pytest.mark.parametrize(
    ("variant", "again"),
    [("llama", DEPTH - 128), ("gemma3", DEPTH - 128), ("qwen35", DEPTH - 128), ("deepseek2-groups-yarn", DEPTH - 128)],
)
def test_a_depth_is_computed_once(variant: str, again: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(write(variant, tmp_path / "m"), sequences=2) as engine:
        steps: list[Run | None] = []
        run = engine.outputs
        monkeypatch.setattr(engine, "outputs", lambda runs: steps.extend(runs) or run(runs))
        computed = []
        for number in (1, 2, 3):
            steps.clear()
            assert rate(engine, Workload(5, True, DEPTH), number, warmup=False, timed=lambda: steps.append(None)) > 0
            before, timed = steps[: steps.index(None)], steps[steps.index(None) + 1 :]
            assert [(len(r.tokens), r.past) for r in timed if r] == [(1, DEPTH + i) for i in range(5)]
            computed.append(sum(len(r.tokens) for r in before if r))
        assert computed == [DEPTH, again, again]


def test_a_run_of_a_prompt_is_its_tokens_after_a_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with load(write("llama", tmp_path / "m")) as engine:
        steps: list[Run | None] = []
        run = engine.outputs
        monkeypatch.setattr(engine, "outputs", lambda runs: steps.extend(runs) or run(runs))
        for number, warm in ((1, [48]), (2, [32])):
            steps.clear()
            rate(engine, Workload(100, False), number, timed=lambda: steps.append(None))
            sizes = [0 if r is None else len(r.tokens) for r in steps]
            assert sizes == [*warm, 0, 48, 48, 4]


def test_names_are_those_of_llama_bench() -> None:
    assert Workload(512, False).name == "pp512"
    assert Workload(32, True, depth=4096).name == "tg32@d4096"
    assert Workload(32, True, depth=16, batch=4).name == "tg32x4@d16"
