"""`tensormill bench`: tokens a second, with the meaning that llama-bench gives to pp, tg and depth."""

from __future__ import annotations

import dataclasses
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensormill.cli.settings import AsJson, ModelFlags
from tensormill.config import EngineConfig
from tensormill.errors import RequestError

if TYPE_CHECKING:
    from tensormill.engine import Engine, Session


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
        Tokens already in the context.
    batch
        Sequences that decode together; their tokens are added up.
    repeat
        How often each test is run.
    warmup
        Run something unmeasured first.
    roofline
        Measure this machine's limits instead and, with a MODEL, how near to them each op comes: prefill of one chunk,
        decode at depth 0 and at -d (without it: 4096).
    json_
        Print a JSON list of {test, tokens_per_second: [one a run]}; with --roofline an object {machine, steps}.
    """
    if min(prompt, generate, depth) < 0 or min(batch, repeat) < 1 or not (prompt or generate):
        raise RequestError("bench needs -p or -n above 0, -d of 0 or more, -b and -r of 1 or more")
    from tensormill.cli.listing import print_json, table
    from tensormill.cli.models import load

    if roofline:
        from tensormill.cli.roofline import run

        return run(model, prompt, depth, engine, as_json=json_)
    longest = depth + max(prompt, generate + 1)
    config = dataclasses.replace(
        engine, context=engine.context or longest * batch, sequences=max(batch, engine.sequences)
    )  # fmt: skip
    results: list[dict[str, Any]] = []
    with load(model, config) as loaded:
        suffix = f"@d{depth}" if depth else ""
        if prompt:
            if warmup:
                _prefill(loaded, min(prompt, loaded.chunk), 0, 0)
            rates = [_prefill(loaded, prompt, depth, run) for run in range(1, repeat + 1)]
            results.append({"test": f"pp{prompt}{suffix}", "tokens_per_second": rates})
        if generate:
            if warmup:
                _decode(loaded, min(generate, 4), 0, batch, 0)
            rates = [_decode(loaded, generate, depth, batch, run) for run in range(1, repeat + 1)]
            together = f"x{batch}" if batch > 1 else ""
            results.append({"test": f"tg{generate}{together}{suffix}", "tokens_per_second": rates})
        about = {"model": loaded.file.path.name, "backend": config.backend, "threads": config.threads}
    if json_:
        print_json([{**entry, **about} for entry in results])
    else:
        print(table([("test", "tok/s", "±"), *map(_row, results)], right=[1, 2]))
    return 0


def _row(entry: dict[str, Any]) -> tuple[str, str, str]:
    from statistics import fmean, pstdev

    rates = entry["tokens_per_second"]
    return entry["test"], f"{fmean(rates):.2f}", f"{pstdev(rates):.2f}"


def _tokens(engine: Engine, count: int, seed: int) -> list[int]:
    """Random tokens, other ones for each seed, so that no cached prefix helps."""
    return Random(seed).choices(range(engine.n_vocab), k=count)


def _prefill(engine: Engine, count: int, depth: int, seed: int) -> float:
    session = engine.session()
    if depth:
        session.feed(_tokens(engine, depth, 2 * seed))
    tokens = _tokens(engine, count, 2 * seed + 1)
    started = time.perf_counter()
    session.feed(tokens)
    taken = time.perf_counter() - started
    session.end()
    _progress(f"pp{count} run {seed}: {count / taken:.1f} tok/s")
    return count / taken


def _decode(engine: Engine, count: int, depth: int, batch: int, seed: int) -> float:
    sessions = [engine.session() for _ in range(batch)]
    for number, session in enumerate(sessions):
        if depth:
            session.feed(_tokens(engine, depth, 1000 * seed + number))
    tokens = _tokens(engine, count * batch, 7 + seed)
    started = time.perf_counter()
    for step in range(count):
        _together(engine, sessions, tokens[step * batch : step * batch + batch])
    taken = time.perf_counter() - started
    for session in sessions:
        session.end()
    _progress(f"tg{count} run {seed}: {count * batch / taken:.1f} tok/s")
    return count * batch / taken


def _together(engine: Engine, sessions: list[Session], tokens: list[int]) -> None:
    """One step that gives each session a token."""
    if len(sessions) == 1:
        sessions[0].feed(tokens)
        return
    from tensormill.engine.together import feed_together

    feed_together(sessions, [[token] for token in tokens])


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
