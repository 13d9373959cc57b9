"""`tensormill bench --roofline`: what this machine can do, and how near to it each op of a model's steps comes.

The numbers are made in `evals/roofline.py`; here they become tables, those that take longest first, or JSON.
"""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tensormill.config import EngineConfig

if TYPE_CHECKING:
    from tensormill.engine import Engine
    from tensormill.evals.roofline import Machine, StepReport, Timed

DEEP = 4096  # tokens before a deep decode step
LONGEST = 16  # ops of a step that are listed
HEAD = ("", "calls", "ms", "of step", "MB", "GB/s", "GOP/s", "limit ms", "of limit")


def run(model: str | None, prompt: int, depth: int, config: EngineConfig, *, as_json: bool) -> int:
    """Measure and print; the exit code. Without a model only the machine, at one and at all threads."""
    from tensormill.backends.cpu.cores import default_threads
    from tensormill.backends.cpu.native import native
    from tensormill.cli.listing import print_json
    from tensormill.cli.models import load
    from tensormill.evals import roofline

    threads, depth = config.threads or default_threads(), depth or DEEP
    room = depth + max(prompt, roofline.STEPS + 2)
    with nullcontext() if model is None else load(model, replace(config, context=config.context or room)) as engine:
        if engine is not None:
            roofline.profiled(engine)  # or it is refused before the machine is measured
        machines = [roofline.machine(t) for t in sorted({1, threads})]
        if not as_json:
            print(_machines(str(native().isa()), machines))
        steps = _steps(engine, machines[-1], prompt, depth, quiet=as_json) if engine is not None else []
    if as_json:
        limits = [asdict(m) for m in machines]
        print_json({"isa": native().isa(), "machine": limits, "steps": [_json(step) for step in steps]})
    return 0


def _steps(engine: Engine, of: Machine, prompt: int, depth: int, *, quiet: bool) -> list[StepReport]:
    from tensormill.evals import roofline

    steps = []
    for tokens, before in [(min(prompt, engine.chunk), 0), (1, 0), (1, depth)]:
        if not tokens:
            continue
        if before + tokens + roofline.STEPS > engine.context:
            what = "decode" if tokens == 1 else f"prefill {tokens}"
            print(f"note: {what} at depth {before} is left out: it does not fit in --ctx {engine.context}", file=sys.stderr)
            continue
        steps.append(roofline.measure(engine, of, tokens, before))
        if not quiet:
            print("\n" + _step(steps[-1]))
    return steps


def layered(name: str) -> str:
    """The name of a value with its block's number left out: equal ops of all blocks are one line."""
    return re.sub(r"\bblk\.\d+\.", "blk.*.", name)


def _machines(isa: str, machines: list[Machine]) -> str:
    from tensormill.cli.listing import table

    rows: list[tuple[str, ...]] = [("threads", "cached GB/s", "DRAM GB/s", "int8 GOP/s", "int16 GOP/s", "float32 GFLOP/s")]
    rows += [(str(m.threads), *(f"{x / 1e9:.1f}" for x in (m.cached, m.dram, m.dot, m.pairs, m.fma))) for m in machines]
    return f"instruction set {isa}\n" + table(rows, right=range(6))


def _step(step: StepReport) -> str:
    from tensormill.cli.listing import table

    total = step.seconds
    reads = f"{step.bytes / 1e6:.1f} MB of weights and caches, read at {step.rate / 1e9:.1f} GB/s at most"
    head = f"{step.what} at depth {step.depth}: {total * 1e3:.3f} ms ({step.tokens / total:.1f} tok/s), {reads}"
    parts = [
        ("by kernel", step.grouped(lambda w: w.kernel)),
        ("by weight type", step.grouped(lambda w: w.types or "no weights")),
        ("by op", step.grouped(lambda w: f"{w.kernel} {layered(w.name)} {w.types}".strip())[:LONGEST]),
    ]
    rows: list[tuple[str, ...]] = []
    for title, timed in parts:
        rows += [(title, *HEAD[1:]), *(_row(t, total) for t in timed), ("",) * len(HEAD)]
    rows[-1] = _row(replace(step.grouped(lambda _: "all")[0]), total)
    return head + "\n" + table(rows, right=range(1, len(HEAD)))


def _row(t: Timed, total: float) -> tuple[str, ...]:
    return (
        t.what,
        str(t.calls),
        f"{t.seconds * 1e3:.3f}",
        f"{t.seconds / total:.1%}",
        f"{t.bytes / 1e6:.2f}",
        f"{t.bytes / t.seconds / 1e9:.1f}" if t.seconds else "–",
        f"{t.operations / t.seconds / 1e9:.1f}" if t.seconds else "–",
        f"{t.floor * 1e3:.3f}",
        f"{t.floor / t.seconds:.0%}" if t.seconds else "–",
    )


def _json(step: StepReport) -> dict[str, Any]:
    records = [{**asdict(w), "seconds": s, "floor": f} for w, s, f in step.records]
    return {
        "what": step.what, "tokens": step.tokens, "depth": step.depth, "rate": step.rate, "seconds": step.seconds,
        "floor": step.floor, "bytes": step.bytes, "records": sorted(records, key=lambda r: -r["seconds"]),
    }  # fmt: skip
