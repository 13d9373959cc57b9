"""A whole comparison: two stand-in programs that say and print what the real ones do, and when they were let run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from llama_cpp_build import Baseline
from versus import models
from versus.cells import Cell
from versus.commands import OFF, ON, Chosen
from versus.measure import measure

from tensormill.gguf import GGMLType

OURS = """
import json, sys, time
sizes = dict(zip(sys.argv[3::2], sys.argv[4::2]))
rounds = int(sizes["-r"])
for run in range(1, rounds + 1):
    for test in ("pp", "tg"):
        print(f"{test}: run {run} of {rounds} begins", file=sys.stderr, flush=True)
        time.sleep(0.1)
        print(f"ours {test}{run}", file=open(LOG, "a"))
print(json.dumps([{"test": test, "tokens_per_second": [100.0 + run for run in range(rounds)]} for test in ("pp8", "tg4")]))
"""
THEIRS = """
import json, sys, time
sizes = dict(zip(sys.argv[1::2], sys.argv[2::2]))
for run, depth in enumerate(sizes["-d"].split(","), 1):
    for n_prompt, n_gen in ((8, 0), (0, 4)):
        print("llama-bench: benchmark 1/2: starting", file=sys.stderr, flush=True)
        time.sleep(0.1)
        print(f"fa {sizes['-fa']} {'pp' if n_prompt else 'tg'}{run}", file=open(LOG, "a"))
        rate = 50.0 + run if sizes["-fa"] == "1" else 20.0
        print(json.dumps({"n_prompt": n_prompt, "n_gen": n_gen, "avg_ts": rate}), flush=True)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "m.gguf"
    models.write(path, models.Shape(256, 512, 2, 4, 2, 64, vocabulary=512), GGMLType.Q8_0)
    return str(path)


def chosen(tmp_path: Path, rounds: int) -> Chosen:
    """Both programs as scripts."""
    for name, program in (("tensormill", OURS), ("llama-bench", THEIRS)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\nLOG = {str(tmp_path / 'log')!r}\n{program}")
        path.chmod(0o700)
    baseline = Baseline(tmp_path, "1", "clang")
    return Chosen(baseline, threads=1, rounds=rounds, patience=0, tensormill=[str(tmp_path / "bin" / "tensormill")])


def test_rounds_alternate_and_the_slower_setting_is_left_out(model: str, tmp_path: Path) -> None:
    cells = [Cell("models", model, "pp8", 8), Cell("models", model, "tg4", generate=4)]
    said: list[str] = []
    made = measure(cells, chosen(tmp_path, 3), said.append)
    order = ["fa 1 1", "fa 0 1", "ours 1", "ours 2", "fa 1 2", "fa 1 3", "ours 3"]
    log = [f"{turn[:-1]}{test}{turn[-1]}" for turn in order for test in ("pp", "tg")]
    assert (tmp_path / "log").read_text().splitlines() == log
    for m in made:
        assert m.ours == [100.0, 101.0, 102.0]
        assert m.theirs == {OFF: [20.0], ON: [51.0, 52.0, 53.0]}
        assert len(m.pressure) == 3 and m.limit and m.limit > 0
    assert [line for line in said if "round 3 of 3" in line]


def test_a_known_setting_is_the_only_one(model: str, tmp_path: Path) -> None:
    cells = [Cell("deep", model, "tg4", generate=4), Cell("deep", model, "pp8", 8)]
    made = measure(cells, chosen(tmp_path, 1), lambda _: None, settings=[OFF])
    assert made[0].theirs == {OFF: [20.0]}
    assert "fa 1" not in (tmp_path / "log").read_text()
