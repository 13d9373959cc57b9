"""`tensormill bench`: tokens a second, with the meaning that llama-bench gives to pp, tg and depth."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from itertools import product
from typing import Annotated, Any

from cyclopts import Parameter

from tensormill.cli.settings import AsJson, ModelFlags
from tensormill.config import EngineConfig
from tensormill.errors import RequestError


def main(
    model: str | None = None,
    /,
    *,
    prompt: Annotated[int, Parameter(name=["--prompt", "-p"])] = 512,
    generate: Annotated[int, Parameter(name=["--generate", "-n"])] = 128,
    depth: Annotated[int, Parameter(name=["--depth", "-d"])] = 0,
    batch: Annotated[int, Parameter(name=["--batch", "-b"])] = 1,
    repeat: Annotated[int, Parameter(name=["--repeat", "-r"])] = 5,
    warmup: bool = True,
    progress: Annotated[bool, Parameter(negative="")] = False,
    roofline: Annotated[bool, Parameter(negative="")] = False,
    json_: AsJson = False,
    engine: ModelFlags = EngineConfig(),  # noqa: B008  (frozen)
) -> int:
    """Measure MODEL (without one: the demo model) on random tokens; sampling is not counted.

    Parameters
    ----------
    model
        A .gguf file; any part of a split one.
    prompt
        Tokens of the prompt to prefill (pp); 0 leaves the test out.
    generate
        Tokens to decode one after another (tg); 0 leaves the test out.
    depth
        Tokens already in the context. They are computed once and kept for all runs, as far as the model can go back.
    batch
        Sequences that decode together; their tokens are added up.
    repeat
        How often each test is run, in turns.
    warmup
        Begin each run with something unmeasured.
    progress
        Say on stderr when each run begins, when its timed part does, and how fast it was.
    roofline
        Measure this machine's limits instead and, with a MODEL, how near to them each op comes: prefill of one chunk,
        decode at depth 0 and at -d (without it: 4096).
    json_
        Print a JSON list of {test, tokens_per_second: [one a run], model, backend, threads}; with --roofline an object
        {isa, machine, steps}.
    """
    if min(prompt, generate, depth) < 0 or min(batch, repeat) < 1 or not (prompt or generate):
        raise RequestError("bench needs -p or -n above 0, -d of 0 or more, -b and -r of 1 or more")
    from tensormill.cli.listing import print_json, table
    from tensormill.cli.models import load

    if roofline:
        from tensormill.cli.roofline import run

        return run(model, prompt, depth, engine, as_json=json_)
    from tensormill.backends.cpu.cores import default_threads
    from tensormill.evals.throughput import Workload, rate

    longest = depth + max(prompt, generate + 1)
    config = dataclasses.replace(
        engine, context=engine.context or longest * batch, sequences=max(batch, engine.sequences)
    )  # fmt: skip
    tests = [Workload(prompt, False, depth)] * (prompt > 0) + [Workload(generate, True, depth, batch)] * (generate > 0)
    rates: dict[Workload, list[float]] = {test: [] for test in tests}
    with load(model, config) as loaded:
        for number, test in product(range(1, repeat + 1), tests):
            say = partial(_say, f"{test.name}: run {number} of {repeat}", progress)
            say(" begins")
            rates[test].append(rate(loaded, test, number, warmup=warmup, timed=partial(say, " is timed")))
            say(f": {rates[test][-1]:.1f} tok/s", always=True)
        about = {"model": loaded.file.path.name, "backend": config.backend, "threads": config.threads or default_threads()}
    results = [{"test": test.name, "tokens_per_second": made} for test, made in rates.items()]
    if json_:
        print_json([{**entry, **about} for entry in results])
    else:
        print(table([("test", "tok/s", "±"), *map(_row, results)], right=[1, 2]))
    return 0


def _row(entry: dict[str, Any]) -> tuple[str, str, str]:
    from statistics import fmean, pstdev

    rates = entry["tokens_per_second"]
    return entry["test"], f"{fmean(rates):.2f}", f"{pstdev(rates):.2f}"


def _say(run: str, progress: bool, what: str, *, always: bool = False) -> None:
    """A line on stderr: with --progress all of them, else a run's speed if a terminal is there."""
    if progress or (always and sys.stderr.isatty()):
        print(run + what, file=sys.stderr, flush=True)
