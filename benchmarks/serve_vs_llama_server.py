"""Serving as a ratio: TensorMill's server against llama.cpp's on the same file, in alternating rounds.

    python benchmarks/serve_vs_llama_server.py [MODEL.gguf] [--threads 2] [--rounds 5] [--json] [--check]

A round starts each server in turn, in an order that turns every round, and sends the same prompts to both: 1, 4 and 16
streams of 128 tokens, then 16 requests at once whose prompts begin with the same 2000 tokens and which want 16 tokens
each. Figures are medians of the rounds, ratios the medians of the rounds' ratios. Both keep keys and values as f16 and have
as much room for them; both get as many threads and slots.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import llama_cpp_build
import load
import machine

ROOT = Path(__file__).resolve().parent.parent
SLOTS = 16
ROOM = 2560  # tokens a slot
WANTED = {"1 stream": 1.0, "4 streams": 1.5, "16 streams": 2.0, "shared prefix": 4.0}  # ratios of tokens a second
Round = dict[str, load.Crowd]  # by test


@dataclass
class Result:
    """The rounds of both programs."""

    ours: list[Round] = field(default_factory=list)
    theirs: list[Round] = field(default_factory=list)

    def row(self, test: str) -> dict[str, Any]:
        """One line of the report."""
        row: dict[str, Any] = {"test": test}
        for name, rounds in (("tensormill", self.ours), ("llama-server", self.theirs)):
            for figure in ("rate", "first", "gap", "gap_p99", "seconds", "prompt", "cached"):
                row[f"{name} {figure}"] = median(getattr(r[test], figure) for r in rounds) if rounds else None
        for figure in ("rate", "gap_p99"):
            pairs = zip(self.ours, self.theirs, strict=False)
            ratios = [getattr(a[test], figure) / getattr(b[test], figure) for a, b in pairs]
            row[f"{figure} ratio"] = median(ratios) if ratios else None
            row[f"{figure} ratio range"] = [min(ratios), max(ratios)] if ratios else None
        return row


@contextmanager
def running(command: list[str], url_of: Callable[[Path], str | None]) -> Iterator[str]:
    """A server, from when it answers /health until the block ends; its URL."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
            try:
                yield _ready(process, log, url_of)
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path, url_of: Callable[[Path], str | None]) -> str:
    end = time.monotonic() + 180
    while time.monotonic() < end and process.poll() is None:
        url = url_of(log)
        try:
            if url and urllib.request.urlopen(url + "/health", timeout=5).status == 200:
                return url
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.1)
    raise SystemExit(f"{process.args!r} does not serve:\n{log.read_text(errors='replace')[-2000:]}")


@contextmanager
def ours(chosen: argparse.Namespace) -> Iterator[str]:
    """`tensormill serve`."""
    command = [*chosen.tensormill, "serve", str(chosen.model), "--port", "0", "--threads", str(chosen.threads)]
    command += ["--sequences", str(SLOTS), "--ctx", str(ROOM), "--kv-tokens", str(SLOTS * ROOM), "--log-level", "warning"]
    command += chosen.flags

    def url_of(log: Path) -> str | None:
        found = re.search(r"^serving on (\S+)", log.read_text(errors="replace"), re.M)
        return found[1] if found else None

    with running(command, url_of) as url:
        yield url


@contextmanager
def theirs(chosen: argparse.Namespace, server: Path) -> Iterator[str]:
    """llama-server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(server), "-m", str(chosen.model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-t", str(chosen.threads), "-tb", str(chosen.threads), "-np", str(SLOTS), "-c", str(SLOTS * ROOM)]
    command += ["--no-webui", "--log-disable"]
    with running(command, lambda log: f"http://127.0.0.1:{port}") as url:
        yield url


def one_round(url: str, chosen: argparse.Namespace, number: int) -> Round:
    """All tests against one server that has just started."""
    load.crowd(url, [load.prompt("warm", 20)], 8)
    made: Round = {}
    for n in chosen.streams:
        prompts = [load.prompt(f"{number} {n} {i}", chosen.words) for i in range(n)]
        made[f"{n} stream{'s' if n > 1 else ''}"] = load.crowd(url, prompts, chosen.tokens)
    if chosen.prefix:
        shared = load.prompt(f"{number} shared", chosen.prefix)
        prompts = [f"{shared}. Question {i}: {load.prompt(f'{number} question {i}', 8)}" for i in range(SLOTS)]
        made["shared prefix"] = load.crowd(url, prompts, 16)
    return made


def measure(chosen: argparse.Namespace, server: Path | None) -> Result:
    """All rounds."""
    result = Result()
    for number in range(chosen.rounds):
        if not machine.wait_until_quiet(chosen.patience):
            _say("another process keeps the CPU busy; measuring all the same: do not quote these")
        for turn in ("ours", "theirs")[:: 1 if number % 2 else -1]:
            if turn == "ours":
                with ours(chosen) as url:
                    result.ours.append(one_round(url, chosen, number))
            elif server is not None:
                with theirs(chosen, server) as url:
                    result.theirs.append(one_round(url, chosen, number))
        _say(f"round {number + 1} of {chosen.rounds}")
    return result


def table(rows: list[dict[str, Any]]) -> str:
    """The report for people: tokens a second of all streams together, milliseconds."""
    lines: list[tuple[str, ...]] = [
        ("test", "", "tok/s", "first", "gap", "p99 gap", "prompt", "cached", "ratio", "range", "p99 ratio")
    ]
    for row in rows:
        for name in ("tensormill", "llama-server"):
            if row[f"{name} rate"] is None:
                continue
            mine = name == "tensormill"
            span = row["rate ratio range"] if mine else None
            cells = [row["test"] if mine else "", name, f"{row[f'{name} rate']:.1f}"]
            cells += [f"{1000 * row[f'{name} {figure}']:.1f}" for figure in ("first", "gap", "gap_p99")]
            cells += [f"{row[f'{name} {figure}']:.0f}" for figure in ("prompt", "cached")]
            cells += [_ratio(row["rate ratio"] if mine else None), f"{span[0]:.2f}–{span[1]:.2f}" if span else ""]
            lines.append((*cells, _ratio(row["gap_p99 ratio"] if mine else None)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def missed(rows: list[dict[str, Any]]) -> list[str]:
    """What of the goals was not reached."""
    found = []
    for row in rows:
        wanted, ratio, p99 = WANTED.get(row["test"]), row["rate ratio"], row["gap_p99 ratio"]
        if wanted and ratio is not None and ratio < wanted:
            found.append(f"{row['test']}: {ratio:.2f} of llama-server's tokens a second, wanted {wanted}")
        if row["test"] != "shared prefix" and p99 is not None and p99 > 1:
            found.append(f"{row['test']}: the p99 gap is {p99:.2f} of llama-server's")
    return found


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, metavar="MODEL", help="default: Qwen2.5-Coder-0.5B")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16], help="default: 1 4 16")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer (default: %(default)s)")
    parser.add_argument("--words", type=int, default=60, help="of a prompt (default: %(default)s)")
    parser.add_argument("--prefix", type=int, default=2000, help="words of the shared beginning; 0: not run (%(default)s)")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet CPU (%(default)s)")
    parser.add_argument("--ours-only", action="store_true", help="do not run llama-server")
    parser.add_argument("--llama-server", type=Path, help="use this program instead of building one")
    parser.add_argument("--flags", type=shlex.split, default=[], help="more for tensormill serve, as --flags='--drafts 4'")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal was missed")
    parser.add_argument("--json", action="store_true", help="every number, on stdout")
    program = str(Path(sys.executable).parent / "tensormill")
    parser.add_argument("--tensormill", type=shlex.split, default=[program], help="the program (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Command line."""
    chosen = _arguments()
    if chosen.model is None:
        fetch = [sys.executable, str(ROOT / "tests" / "get_models.py"), "qwen-coder-0.5b"]
        chosen.model = Path(subprocess.run(fetch, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    server = None if chosen.ours_only else chosen.llama_server or llama_cpp_build.build().server
    result = measure(chosen, server)
    rows = [result.row(test) for test in result.ours[0]]
    about = {**machine.about(), "model": chosen.model.name, "threads": chosen.threads, "rounds": chosen.rounds}
    if chosen.json:
        print(json.dumps({"machine": about, "rows": rows, "rounds": asdict(result)}, indent=2))
    else:
        print(table(rows))
        print(
            f"\n{about['cpu']}, {chosen.model.name}, {chosen.threads} threads, median of {chosen.rounds} rounds; times in ms."
        )
    for miss in (faults := missed(rows)):
        _say(f"missed: {miss}")
    return int(chosen.check and bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
