"""Runs both programs, each in processes of its own, and reads what they print.

Cells of one run are measured together. A round runs both programs once, in an order that turns; the first round runs llama.cpp
with flash attention off and on, later ones only with what was better then, if it was so by a tenth.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import machine
from llama_cpp_build import Baseline

from versus.cells import Cell
from versus.limits import limit
from versus.models import path_of

OFF, ON = "fa off", "fa on"
Numbers = dict[str, float]  # a cell's test → its number
POLL = 0.02  # seconds between looks at a process
BUSY = "while True: pass"
IDLE = """
import sys, time
from tensormill.engine import Engine
engine = Engine.load(sys.argv[1])
engine.session().feed([1, 2, 3])
before = time.process_time()
time.sleep(2)
print((time.process_time() - before) / 2)
"""


@dataclass(frozen=True)
class Chosen:
    """How to measure."""

    baseline: Baseline
    threads: int
    rounds: int
    patience: float = 60
    tensormill: Sequence[str] = (sys.executable, "-m", "tensormill.cli.main")


@dataclass
class Measured:
    """One cell's numbers: ours and, by setting, llama.cpp's, one a round."""

    cell: Cell
    limit: float | None = None
    ours: list[float] = field(default_factory=list)
    theirs: dict[str, list[float]] = field(default_factory=dict)
    their_limit: float | None = None  # where it is not the machine's
    pressure: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """A process that ended well: what it printed, how long it took, the most memory it had."""

    out: str
    seconds: float
    megabytes: float


def measure(cells: list[Cell], chosen: Chosen, say: Callable[[str], None]) -> list[Measured]:
    """All rounds of cells of one run."""
    path = path_of(cells[0].model)
    made = [Measured(cell, limit(path, cell, chosen.threads)) for cell in cells]
    settings = _settings(cells[0])
    for number in range(chosen.rounds):
        if not machine.wait_until_quiet(chosen.patience):
            say("another process keeps the CPU busy; measuring all the same")
        pressure = machine.Pressure()
        ours: Numbers = {}
        theirs: dict[str, Numbers] = {}
        for side in ("ours", "theirs")[:: 1 if number % 2 else -1]:
            if side == "ours":
                ours = run_ours(path, cells, chosen)
            else:
                theirs = run_theirs(path, cells, chosen, settings)
        share = None if cells[0].part == "busy" else pressure.share()  # there it is meant
        for m in made:
            m.ours.append(ours[m.cell.test])
            for setting in settings:
                m.theirs.setdefault(setting, []).append(theirs[setting][m.cell.test])
            m.pressure.append(share)
        settings = worth_repeating(made)
        say(f"{cells[0].key}: round {number + 1} of {chosen.rounds}: " + ", ".join(map(_short, made)))
    if cells[0].part == "busy":
        for m in made:
            m.limit, m.their_limit = ours["quiet"], theirs[settings[0]]["quiet"]
    return made


def _short(m: Measured) -> str:
    theirs = "/".join(f"{numbers[-1]:.4g}" for numbers in m.theirs.values())
    return f"{m.cell.test} {m.ours[-1]:.4g} : {theirs or '–'} {m.cell.unit}"


def _settings(cell: Cell) -> list[str]:
    if cell.part == "idle":
        return []
    return [ON] if cell.kv not in ("f16", "f32", "bf16") or cell.part in ("start", "busy") else [OFF, ON]


def worth_repeating(made: list[Measured]) -> list[str]:
    """The settings of llama.cpp that are best in some cell, or within a tenth of it."""
    kept: list[str] = []
    for m in made:
        typical = {setting: median(numbers) for setting, numbers in m.theirs.items()}
        best = max(typical.values(), default=0.0)
        kept += [s for s, rate in typical.items() if s not in kept and (m.cell.less or rate > 0.9 * best)]
    return kept


# ---- ours ----


def run_ours(path: Path, cells: Sequence[Cell], chosen: Chosen) -> Numbers:
    """Our numbers of one round."""
    first = cells[0]
    if first.part == "idle":
        return {first.test: float(finish([sys.executable, "-c", IDLE, str(path)]).out)}
    done = finish(our_command(path, cells, chosen))
    if first.part == "start":
        return {"first token": done.seconds, "peak memory": done.megabytes}
    numbers = our_numbers(json.loads(done.out), cells)
    if first.part == "busy":
        with busy_process():
            busy = our_numbers(json.loads(finish(our_command(path, cells, chosen)).out), cells)
        return {**busy, "quiet": numbers[first.test]}
    return numbers


def our_command(path: Path, cells: Sequence[Cell], chosen: Chosen) -> list[str]:
    """`tensormill bench` for these cells."""
    first = cells[0]
    prompt, generate = (max(getattr(c, name) for c in cells) for name in ("prompt", "generate"))
    command = [*chosen.tensormill, "bench", str(path), "-p", str(prompt), "-n", str(generate), "-d", str(first.depth)]
    command += ["-b", str(first.batch), "--kv-type", first.kv, "-r", "1", "--threads", str(chosen.threads), "--json"]
    return [*command, "--no-warmup"] if first.part == "start" else command


def our_numbers(entries: Sequence[dict[str, Any]], cells: Sequence[Cell]) -> Numbers:
    """From the JSON of `tensormill bench`: {test: pp… or tg…, tokens_per_second: […]}."""
    rates = {entry["test"][:2]: median(entry["tokens_per_second"]) for entry in entries}
    return {cell.test: rates["pp" if cell.prompt else "tg"] for cell in cells}


# ---- llama.cpp's ----


def run_theirs(path: Path, cells: Sequence[Cell], chosen: Chosen, settings: Sequence[str]) -> dict[str, Numbers]:
    """llama.cpp's numbers of one round, by setting."""
    made = {}
    for setting in settings:
        done = finish(their_command(path, cells, chosen, setting))
        if cells[0].part == "start":
            made[setting] = {"first token": done.seconds, "peak memory": done.megabytes}
            continue
        made[setting] = their_numbers(done.out, cells)
        if cells[0].part == "busy":
            with busy_process():
                busy = their_numbers(finish(their_command(path, cells, chosen, setting)).out, cells)
            made[setting] = {**busy, "quiet": made[setting][cells[0].test]}
    return made


def their_command(path: Path, cells: Sequence[Cell], chosen: Chosen, setting: str) -> list[str]:
    """llama-bench, or llama-batched-bench for several sequences, for these cells."""
    first = cells[0]
    prompt, generate = (max(getattr(c, name) for c in cells) for name in ("prompt", "generate"))
    flash = {OFF: "0", ON: "1"}[setting]
    common = ["-m", str(path), "-t", str(chosen.threads), "-ctk", first.kv, "-ctv", first.kv]
    if first.batch > 1:
        room = first.batch * -(-(first.depth + generate) // 256) * 256
        sizes = ["-npp", str(first.depth), "-ntg", str(generate), "-npl", str(first.batch), "-c", str(room)]
        words = {"0": "off", "1": "on"}[flash]
        return [str(chosen.baseline.batched_bench), *common, *sizes, "-fa", words, "--output-format", "jsonl"]
    # A long prompt warms itself up: a short one before it has touched the weights.
    prompts = f"32,{prompt}" if prompt >= 2048 else str(prompt)
    command = [str(chosen.baseline.bench), *common, "-p", prompts, "-n", str(generate), "-d", str(first.depth)]
    command += ["-fa", flash, "-r", "1", "-o", "json"]
    return [*command, "--no-warmup"] if prompt >= 2048 or first.part == "start" else command


def their_numbers(out: str, cells: Sequence[Cell]) -> Numbers:
    """From llama-bench's JSON list or llama-batched-bench's JSON lines."""
    if cells[0].batch > 1:
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return {c.test: next(float(line["speed_tg"]) for line in lines if line["pl"] == c.batch) for c in cells}
    rates = {(e["n_prompt"], e["n_gen"]): float(e["avg_ts"]) for e in json.loads(out)}
    return {c.test: rates[c.prompt, c.generate] for c in cells}


# ---- processes ----


def finish(command: Sequence[str]) -> Finished:
    """Run a process to its end; SystemExit tells what it said if it failed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        started, most = time.perf_counter(), 0.0
        process = subprocess.Popen(command, stdout=out, stderr=error)
        while process.poll() is None:
            most = max(most, peak_megabytes(process.pid))
            time.sleep(POLL)
        seconds = time.perf_counter() - started
        out.seek(0)
        error.seek(0)
        if code := process.returncode:
            died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise SystemExit(f"{' '.join(command)}\nended with {died}:\n{error.read()[-2000:]}")
        return Finished(out.read(), seconds, most)


def peak_megabytes(pid: int) -> float:
    """The most memory that a process has had so far (its rusage would tell of its parent's, too); 0 where none can say."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


@contextmanager
def busy_process() -> Iterator[None]:
    """Another process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()
