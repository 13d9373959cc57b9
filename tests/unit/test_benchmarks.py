"""The arithmetic of the comparison with llama.cpp, its files and what it reads; the comparison itself is `make bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import machine
import vs_llama_cpp
from llama_cpp_build import Baseline
from versus import commands, measure, models, processes, report
from versus.cells import PARTS, Cell, Goal, cells
from versus.commands import OFF, ON
from versus.limits import limit
from versus.measure import Measured
from versus.results import Results, Row

from tensormill.engine import Engine, EngineConfig
from tensormill.gguf import GGMLType
from tensormill.quant import decode

WHERE = {"cpu": "some", "cores": 2, "features": ["avx2"], "threads": 2, "llama.cpp": "1", "compiler": "clang"}
PREFILL = Cell("prefill", "m", "pp512", 512, least=Goal(2), aim=Goal(4))
DECODE = Cell("decode", "m", "tg128", generate=128, least=Goal(1, 0.5), aim=Goal(share=0.9))
CHOSEN = commands.Chosen(Baseline(Path("/b"), "1", "clang"), threads=2, rounds=3, tensormill=["tensormill"])


def measured() -> list[Measured]:
    return [
        Measured(PREFILL, 1000.0, [300.0, 330.0, 320.0], {OFF: [100.0], ON: [150.0, 150.0, 150.0]}, None, [0.0, 0.0, 0.0]),
        Measured(DECODE, 200.0, [100.0, 110.0, 10.0], {OFF: [100.0, 100.0, 10.0], ON: [50.0]}, None, [0.0, None, 0.5]),
    ]


def results() -> Results:
    made = Results(WHERE)
    made.put(measured(), "2026-01-01")
    return made


def row(cell: Cell) -> Row:
    found = results().of(cell)
    assert found is not None
    return found


def test_the_better_setting_of_llama_cpp_is_chosen_test_by_test() -> None:
    assert row(PREFILL).setting == ON
    assert row(DECODE).setting == OFF


def test_the_ratio_is_of_runs_of_one_round() -> None:
    assert row(DECODE).ratios == [1.0, 1.1, 1.0]  # a slow third round slows both
    assert row(DECODE).share == 0.5
    assert row(DECODE).disturbed == 1


def test_goals_are_judged() -> None:
    rows = results().rows
    assert row(PREFILL).meets(PREFILL.least, rows) is True
    assert row(PREFILL).meets(PREFILL.aim, rows) is False
    assert row(DECODE).meets(DECODE.least, rows) is True
    assert row(DECODE).meets(Goal(), rows) is None
    assert row(DECODE).meets(Goal(beats=PREFILL.key), rows) is False
    assert row(PREFILL).meets(Goal(beats=DECODE.key), rows) is True
    assert row(PREFILL).meets(Goal(beats="not/measured/yet"), rows) is None
    assert row(PREFILL).meets(Goal(most=319.0), rows) is False


def test_less_is_better_of_seconds_and_megabytes() -> None:
    taken = Row("start/m/first token", "s", [2.0, 2.0], {ON: [4.0, 3.0]}, limit=1.0)
    assert taken.ratios == [2.0, 1.5]
    assert taken.share == 0.5


def test_only_worthwhile_settings_are_repeated() -> None:
    close = [Measured(DECODE, None, [], {OFF: [95.0], ON: [100.0]})]
    assert measure.worth_repeating(close) == [OFF, ON]
    close[0].theirs = {OFF: [95.0, 101.0], ON: [100.0, 100.0]}
    assert measure.worth_repeating(close) == [OFF, ON]  # each was the better once
    close[0].theirs = {OFF: [95.0, 99.0], ON: [100.0, 100.0]}
    assert measure.worth_repeating(close) == [ON]
    far = [Measured(PREFILL, None, [], {OFF: [85.0], ON: [100.0]})]
    assert measure.worth_repeating(far) == [ON]
    assert measure.worth_repeating([*far, Measured(DECODE, None, [], {OFF: [100.0], ON: [50.0]})]) == [ON, OFF]  # one in each
    assert measure.worth_repeating(measured()[:1]) == [ON]  # the other is left out already


def test_settings_are_those_that_were_not_slower_in_cells_like_it() -> None:
    like = [Cell("types", "n", "pp512", like=PREFILL.key), Cell("types", "n", "tg", like=DECODE.key)]
    assert vs_llama_cpp.known_settings(like[:1], results()) == [ON]
    assert vs_llama_cpp.known_settings(like, results()) == [ON, OFF]
    assert vs_llama_cpp.known_settings([*like, Cell("types", "n", "t", like="not/measured/yet")], results()) == []
    assert vs_llama_cpp.known_settings([PREFILL], results()) == []


def test_results_merge_into_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    results().write(path)
    again = Results.read(path, WHERE)
    assert again.rows == results().rows
    again.put([Measured(DECODE, 200.0, [150.0], {OFF: [50.0], ON: [60.0]}, None, [0.0])], "2026-01-02")
    again.write(path)
    merged = Results.read(path)
    assert merged.of(PREFILL) == row(PREFILL)
    found = merged.of(DECODE)
    assert found is not None and (found.ours, found.date, found.setting) == ([150.0], "2026-01-02", ON)
    with pytest.raises(SystemExit, match="another threads"):
        Results.read(path, WHERE | {"threads": 4})


def test_the_table_as_text_and_as_markdown(tmp_path: Path) -> None:
    told = report.text([PREFILL, DECODE], results())
    assert "2.13" in told and "2.00–2.20" in told and "tg128*" in told
    assert "at least: 2 of 2; aim: 0 of 2" in told
    document = tmp_path / "cpu.md"
    document.write_text("# Words\n\nby hand.\n")
    for _ in range(2):
        report.put_into(document, report.markdown([PREFILL, DECODE], results()))
    assert document.read_text().startswith("# Words\n\nby hand.\n")
    assert document.read_text().count("| m | pp512 |") == 1
    assert "1 cells not measured" in report.text([PREFILL, Cell("deep", "m", "tg32")], results())


def test_the_table_has_goals_and_no_cell_twice() -> None:
    keys = [cell.key for cell in cells()]
    assert len(set(keys)) == len(keys)
    assert [cell.model for cell in cells() if not (cell.least and cell.aim)] == ["qwen-coder-1.5b", "smollm2"]
    assert {cell.part for cell in cells()} == set(PARTS)
    assert all(cell.least.beats in keys for cell in cells() if cell.least.beats)
    assert [len(run) for run in vs_llama_cpp.runs(c for c in cells() if c.part == "types")] == [2] * len(models.TYPES)
    assert all(cell.like in keys for cell in cells() if cell.like)
    twice = [{cell.part for cell in run} for run in vs_llama_cpp.runs(c for c in cells() if c.depth == 4096)]
    assert twice.count({"deep", "kv"}) == 2  # measured once for both parts


def test_commands_ask_both_for_the_same_work() -> None:
    deep = [Cell("kv", "m", "t", generate=32, depth=4096, kv="q8_0")]
    ours, theirs = commands.our_command(Path("m"), deep, CHOSEN, 2), commands.their_command(Path("m"), deep, CHOSEN, ON, 2)
    assert " ".join(ours) == "tensormill bench m -p 0 -n 32 -d 4096 -b 1 --kv-type q8_0 -r 2 --threads 2 --json --progress"
    assert " ".join(theirs) == (
        "/b/bin/llama-bench -m m -t 2 -ctk q8_0 -ctv q8_0 -p 0 -n 32 -d 4096,4096 -fa 1 -r 1 -o jsonl --progress"
    )
    many = commands.their_command(Path("m"), [Cell("batch", "m", "t", generate=32, depth=16, batch=16)], CHOSEN, OFF)
    assert {"llama-batched-bench", "4096"} <= {word.rpartition("/")[2] for word in many}


def test_what_llama_cpp_prints_is_read() -> None:
    tests = ((32, 0, 1.0), (512, 0, 2.5), (0, 128, 3.5), (32, 0, 9.0), (512, 0, 3.0), (0, 128, 4.0), (32, 0, 9.0))
    out = "\n".join(json.dumps({"n_prompt": p, "n_gen": n, "avg_ts": r}) for p, n, r in tests)
    read = commands.their_numbers(out, [PREFILL, DECODE])
    assert read == [{"pp512": 2.5, "tg128": 3.5}, {"pp512": 3.0, "tg128": 4.0}]  # the rounds that are complete
    assert commands.their_numbers("", [PREFILL]) == []
    line = json.dumps({"pl": 4, "tg": 32, "speed_tg": 77.5, "speed_pp": 9.0})
    four = Cell("batch", "m", "tg32x4", generate=32, depth=16, batch=4)
    assert commands.their_numbers(f"some log\n{line}\n\nmore", [four]) == [{"tg32x4": 77.5}]


def test_what_we_print_is_read() -> None:
    entries = [{"test": "pp512", "tokens_per_second": [3.0, 4.0]}, {"test": "tg128@d5", "tokens_per_second": [1.0, 9.0]}]
    read = commands.our_numbers(json.dumps(entries), [PREFILL, DECODE])
    assert read == [{"pp512": 3.0, "tg128": 1.0}, {"pp512": 4.0, "tg128": 9.0}]


@pytest.mark.parametrize("kind", models.TYPES)
def test_random_blocks_are_weights_of_a_sane_size(kind: str) -> None:
    type = GGMLType[kind]
    values = decode(type, models.blocks(type, 512).reshape(1, -1))
    assert np.isfinite(values).all()
    assert 0.005 < np.sqrt(np.mean(np.square(values))) < 0.05


@pytest.mark.parametrize("experts", [0, 8])
def test_a_random_model_runs_within_its_limit(experts: int, tmp_path: Path) -> None:
    shape = models.Shape(256, 512, 2, 4, 2, 64, vocabulary=512, experts=experts, used=2 if experts else 0)
    path = tmp_path / "m.gguf"
    models.write(path, shape, GGMLType.Q4_K)
    with Engine.load(path, EngineConfig(context=64, threads=1)) as engine:
        logits = engine.session().feed([1, 2, 3])
        assert np.isfinite(logits).all() and np.ptp(logits) > 0
    shallow = limit(path, Cell("deep", "m", "t", generate=2), 1)
    deep = limit(path, Cell("deep", "m", "t", generate=2, depth=4096), 1)
    prompt = limit(path, PREFILL, 1)
    assert shallow and deep and prompt and 10 < deep < shallow
    assert prompt > 100


def test_a_process_is_waited_for_and_measured() -> None:
    done = processes.finish([sys.executable, "-c", "x = bytearray(b'1') * 100_000_000; import time; time.sleep(0.2); print(7)"])
    assert done.out == "7\n" and done.seconds > 0.2 and done.megabytes > 100
    with pytest.raises(SystemExit, match=r"exit code 3:\nwhy"):
        processes.finish([sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"])


def test_a_process_does_not_outlive_who_waits_for_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(60)"
    waits = (
        f"import signal, sys; sys.path.insert(0, {str(Path(machine.__file__).parent)!r}); from versus import processes; "
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)); processes.finish([sys.executable, '-c', {child!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", waits])
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline, "the process does not begin"
        time.sleep(0.02)
    process.terminate()
    assert process.wait(timeout=30) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rounds", "0"], "0 is below 1"),
        (["--threads", "-1"], "-1 is below 1"),
        (["--full", "nothing"], "no cell has such a name"),
        (["--full", "--parts", "some"], "there is no part some"),
        (["nowhere.gguf"], "there is no file nowhere.gguf"),
        (["--show", "--results", "README.md"], "README.md holds no results"),
        (["--show", "--results", "nowhere.json"], "there are no results: nowhere.json"),
    ],
)
def test_what_cannot_be_compared_is_told(words: list[str], told: str) -> None:
    tool = [sys.executable, str(Path(vs_llama_cpp.__file__)), *words]
    done = subprocess.run(tool, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=120)
    assert done.returncode != 0 and told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this kernel does not tell what was read from disk")
def test_a_file_is_read_whole_into_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1" * ((1 << 24) + 5))
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    before = read_from_disk()
    machine.into_page_cache(path)
    first = read_from_disk()
    path.read_bytes()
    assert read_from_disk() == first >= before


def read_from_disk() -> int:
    """Bytes that this process had fetched from disk."""
    return int(next(line for line in Path("/proc/self/io").read_text().splitlines() if "read_bytes" in line).split()[1])


def test_bandwidth_is_of_this_world() -> None:
    assert 0.1e9 < machine.read_bandwidth(16 << 20, 1) < 2e12


@pytest.mark.skipif(not machine.PRESSURE.exists(), reason="this kernel does not report CPU pressure")
def test_pressure_is_a_share() -> None:
    pressure = machine.Pressure()
    time.sleep(0.05)
    assert 0 <= pressure.share() <= 1.5
