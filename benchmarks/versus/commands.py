"""What both programs are asked to do, how they tell of it, and what they print: the same work for both.

A command may ask for several rounds in one process. Of ours a round is a run of each test; llama-bench, whose own repetitions
have no untimed part where it could be stopped, is given the depth once a round, so that each begins with a warm-up.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_cpp_build import Baseline

from versus.cells import Cell
from versus.turns import Marks

OFF, ON = "fa off", "fa on"
NEVER = re.compile(r"(?!)")
LONG = 2048  # tokens of a prompt that warms itself up
Numbers = dict[str, float]  # a cell's test → its number


@dataclass(frozen=True)
class Chosen:
    """How to measure."""

    baseline: Baseline
    threads: int
    rounds: int
    patience: float = 60
    tensormill: Sequence[str] = (sys.executable, "-m", "tensormill.cli.main")


def _sizes(cells: Sequence[Cell]) -> tuple[int, int]:
    """The longest prompt and the most generated tokens."""
    return max(cell.prompt for cell in cells), max(cell.generate for cell in cells)


# ---- ours ----


def our_command(path: Path, cells: Sequence[Cell], chosen: Chosen, rounds: int = 1) -> list[str]:
    """`tensormill bench` for these cells."""
    first, (prompt, generate) = cells[0], _sizes(cells)
    command = [*chosen.tensormill, "bench", str(path), "-p", str(prompt), "-n", str(generate), "-d", str(first.depth)]
    command += ["-b", str(first.batch), "--kv-type", first.kv, "-r", str(rounds), "--threads", str(chosen.threads)]
    return [*command, "--json", "--no-warmup" if first.part == "start" else "--progress"]


def our_marks(cells: Sequence[Cell]) -> Marks:
    """How `tensormill bench --progress` tells of its runs."""
    return Marks(
        re.compile(r": run \d+ of \d+ begins"), re.compile(r": run \d+ of \d+ is timed"), sum(map(bool, _sizes(cells)))
    )


def our_numbers(out: str, cells: Sequence[Cell]) -> list[Numbers]:
    """Round by round from the JSON of `tensormill bench`: {test: pp… or tg…, tokens_per_second: […]}."""
    entries: list[dict[str, Any]] = json.loads(out)
    rates = {entry["test"][:2]: entry["tokens_per_second"] for entry in entries}
    return _by_round({cell.test: rates["pp" if cell.prompt else "tg"] for cell in cells})


# ---- llama.cpp's ----


def their_command(path: Path, cells: Sequence[Cell], chosen: Chosen, setting: str, rounds: int = 1) -> list[str]:
    """llama-bench, or llama-batched-bench for several sequences, for these cells."""
    first, (prompt, generate) = cells[0], _sizes(cells)
    flash = {OFF: "0", ON: "1"}[setting]
    common = ["-m", str(path), "-t", str(chosen.threads), "-ctk", first.kv, "-ctv", first.kv]
    if first.batch > 1:
        room = first.batch * -(-(first.depth + generate) // 256) * 256
        batches = ",".join([str(first.batch)] * rounds)
        sizes = ["-npp", str(first.depth), "-ntg", str(generate), "-npl", batches, "-c", str(room)]
        words = {"0": "off", "1": "on"}[flash]
        return [str(chosen.baseline.batched_bench), *common, *sizes, "-fa", words, "--output-format", "jsonl"]
    # A long prompt warms itself up: a short one before it has touched the weights.
    prompts = f"32,{prompt}" if prompt >= LONG else str(prompt)
    depths = ",".join([str(first.depth)] * rounds)
    command = [str(chosen.baseline.bench), *common, "-p", prompts, "-n", str(generate), "-d", depths]
    command += ["-fa", flash, "-r", "1", "-o", "jsonl", "--progress"]
    return [*command, "--no-warmup"] if prompt >= LONG or first.part == "start" else command


def their_marks(cells: Sequence[Cell]) -> Marks:
    """How `llama-bench --progress` tells of its tests; llama-batched-bench prints a result and goes on with the next prompt."""
    prompt, generate = _sizes(cells)
    if cells[0].batch > 1:
        return Marks(re.compile(r"^\{"), NEVER, output=True)
    tests = (2 if prompt >= LONG else bool(prompt)) + bool(generate)
    return Marks(re.compile(r": benchmark \d+/\d+: starting"), re.compile(r": (prompt|generation) run \d"), tests)


def their_numbers(out: str, cells: Sequence[Cell]) -> list[Numbers]:
    """Round by round from the JSON lines of llama-bench or llama-batched-bench, as far as they go."""
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if cells[0].batch > 1:
        return _by_round({c.test: [float(line["speed_tg"]) for line in lines if line["pl"] == c.batch] for c in cells})
    sizes = [(line["n_prompt"], line["n_gen"], float(line["avg_ts"])) for line in lines]
    return _by_round({c.test: [rate for p, n, rate in sizes if (p, n) == (c.prompt, c.generate)] for c in cells})


def _by_round(rates: dict[str, list[float]]) -> list[Numbers]:
    return [dict(zip(rates, numbers, strict=True)) for numbers in zip(*rates.values(), strict=False)]
