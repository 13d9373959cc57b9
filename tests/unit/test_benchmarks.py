"""The arithmetic behind the comparison with llama.cpp; the comparison itself is `make bench`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import machine
import vs_llama_cpp


def result() -> vs_llama_cpp.Result:
    made = vs_llama_cpp.Result("m", weight_bytes=100_000_000, bandwidth=20e9)
    made.ours = [{"pp512": 300.0, "tg128": 100.0}, {"pp512": 330.0, "tg128": 110.0}, {"pp512": 320.0, "tg128": 10.0}]
    made.theirs["fa off"] = [
        {"pp512": 100.0, "tg128": 100.0},
        {"pp512": 110.0, "tg128": 100.0},
        {"pp512": 100.0, "tg128": 10.0},
    ]
    made.theirs["fa on"] = [{"pp512": 150.0, "tg128": 50.0}] * 3
    return made


def test_the_better_setting_of_llama_cpp_is_chosen_test_by_test() -> None:
    assert result().row("pp512")["llama.cpp setting"] == "fa on"
    assert result().row("tg128")["llama.cpp setting"] == "fa off"


def test_the_ratio_is_of_runs_of_one_round() -> None:
    row = result().row("tg128")
    assert row["ratio"] == 1.0  # a slow third round slows both
    assert row["ratio range"] == [1.0, 1.1]


def test_only_decoding_has_a_share_of_the_memory_limit() -> None:
    assert result().row("tg128")["limit"] == 200.0
    assert result().row("tg128")["tensormill of limit"] == 0.5
    assert result().row("pp512")["limit"] is None


def test_a_report_of_the_baseline_alone_has_no_ratio() -> None:
    alone = result()
    alone.ours = []
    assert alone.row("tg128")["ratio"] is None
    assert "fa off" in vs_llama_cpp.table([alone])


def test_bandwidth_is_of_this_world() -> None:
    assert 0.1e9 < machine.read_bandwidth(16 << 20, 1) < 2e12


@pytest.mark.skipif(not machine.PRESSURE.exists(), reason="this kernel does not report CPU pressure")
def test_pressure_is_a_share() -> None:
    pressure = machine.Pressure()
    time.sleep(0.05)
    assert 0 <= pressure.share() <= 1.5
