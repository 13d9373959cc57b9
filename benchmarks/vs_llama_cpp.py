"""Speed as a ratio: TensorMill against llama.cpp on the same files, in alternating runs, beside the machine's limit.

    python benchmarks/vs_llama_cpp.py [MODEL.gguf ...]               prefill of 512 tokens and decode
    python benchmarks/vs_llama_cpp.py --full [--parts prefill,kv]    the whole table, or parts of it

With --full results are kept in a JSON file; later runs merge into it, so the table can be gathered in pieces, and --only
repeats single cells. Each round runs both programs, in turns; a ratio is the median of the rounds' ratios. With --isa avx2
both do without what this machine has beyond AVX2.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import llama_cpp_build
import machine
from versus import report
from versus.cells import PARTS, Cell, cells
from versus.commands import Chosen
from versus.measure import measure
from versus.models import ROOT, known
from versus.results import Results

DEFAULT = ("smollm2", "qwen-coder-1.5b")
RESULTS = ROOT / "docs" / "benchmarks" / "cpu.json"


def chosen_cells(given: argparse.Namespace) -> list[Cell]:
    """The cells that the command line asks for."""
    if not (given.full or given.show):
        if missing := [model for model in given.models if not known(model)]:
            raise SystemExit(f"there is no file {', '.join(missing)}; give paths, or names such as {', '.join(DEFAULT)}")
        sizes = {"prompt": given.prompt, "generate": given.generate}
        return [
            Cell("models", str(model), f"{name}{count}", **{kind: count})
            for model in given.models or DEFAULT
            for (kind, count), name in zip(sizes.items(), ("pp", "tg"), strict=True)
            if count
        ]
    parts, models = given.parts.split(","), [str(m) for m in given.models]
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found = [
        cell
        for cell in cells()
        if cell.part in parts and (not models or cell.model in models)
        if all(word in cell.key for word in given.only) and not any(word in cell.key for word in given.skip)
    ]
    if not found:
        raise SystemExit("no cell has such a name; some are " + ", ".join(cell.key for cell in cells()[::12]))
    return found


def runs(wanted: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that are measured by the same processes, together."""
    made: dict[tuple[object, ...], list[Cell]] = {}
    for cell in wanted:
        made.setdefault(cell.run, []).append(cell)
    return list(made.values())


def known_settings(together: Iterable[Cell], results: Results) -> list[str]:
    """The settings of llama.cpp that were not found to be slower in cells like these; none if there is one like none."""
    like = [results.rows.get(cell.like or "") for cell in together]
    return list(dict.fromkeys(s for row in like if row for s in row.repeated)) if all(like) else []


def gather(wanted: list[Cell], given: argparse.Namespace, baseline: llama_cpp_build.Baseline) -> Results:
    """Measure, keeping what is done after each run."""
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does: what is measured is not Python's compiler
    where = {**machine.about(), "threads": given.threads, "llama.cpp": baseline.version, "compiler": baseline.compiler}
    if given.isa:
        where["features"] = [given.isa]
    results = Results.read(given.results, where) if given.full else Results(where)
    how = Chosen(baseline, given.threads, given.rounds, given.patience)
    quiet = False
    for together in runs(wanted):
        if given.missing and all(results.of(cell) for cell in together):
            continue
        made = measure(together, how, _say, known_settings(together, results), quiet)
        last = made[0].pressure[-1]
        quiet = last is not None and last < machine.QUIET
        results.put(made, datetime.date.today().isoformat())
        if given.full:
            results.write(given.results)
    return results


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return int(text)


def _end(number: int, _: object) -> None:
    """Ctrl-C or SIGTERM: what was started ends with this process, stopped or not, by its `finally`s."""
    sys.exit(f"ended by {signal.Signals(number).name}; --full has kept what was measured whole")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="files; with --full names of the table's models")
    parser.add_argument("--threads", type=_count, default=os.cpu_count(), help="default: %(default)s")
    parser.add_argument("--rounds", type=_count, default=5, help="default: %(default)s")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt tokens (default: %(default)s)")
    parser.add_argument("-n", "--generate", type=int, default=128, help="generated tokens (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet CPU (%(default)s)")
    parser.add_argument("--isa", choices=llama_cpp_build.NARROW, help="a smaller instruction set than this machine's, for both")
    parser.add_argument("--require", type=float, metavar="RATIO", help="exit with 1 if a ratio is below this")
    parser.add_argument("--json", action="store_true", help="every number, on stdout")
    full = parser.add_argument_group("the whole table")
    full.add_argument("--full", action="store_true", help="the cells that this project set itself")
    full.add_argument("--parts", default=",".join(PARTS), help="some of: %(default)s")
    full.add_argument("--only", action="append", default=[], metavar="TEXT", help="cells whose name PART/MODEL/TEST has it")
    full.add_argument("--skip", action="append", default=[], metavar="TEXT", help="no cells whose name has it")
    full.add_argument("--missing", action="store_true", help="leave out what the results have already")
    full.add_argument("--show", action="store_true", help="measure nothing: show what the results have")
    full.add_argument("--results", type=Path, default=RESULTS, help="default: %(default)s")
    full.add_argument("--markdown", type=Path, metavar="FILE", help="put the table between the marks of a document")
    full.add_argument("--plot", type=Path, metavar="FILE", help="a picture of the table (matplotlib)")
    return parser.parse_args()


def main() -> int:
    """Command line."""
    given = _arguments()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)
    wanted = chosen_cells(given)
    if given.show and not given.results.exists():
        raise SystemExit(f"there are no results: {given.results} does not exist")
    if given.isa:
        os.environ["TENSORMILL_ISA"] = given.isa  # of this process, which measures the limits, and of those it starts
    results = Results.read(given.results) if given.show else gather(wanted, given, llama_cpp_build.build(isa=given.isa))
    if given.json:
        rows: dict[str, Any] = {
            key: vars(row) | {"ratios": row.ratios, "share": row.share} for key, row in results.rows.items()
        }
        print(json.dumps({"where": results.where, "rows": rows}, indent=2))
    else:
        print(report.text(wanted, results))
    if given.markdown:
        report.put_into(given.markdown, report.markdown(cells(), results))
    if given.plot:
        from versus.plot import draw

        draw(cells(), results, given.plot)
    ratios = [median(row.ratios) for cell in wanted if (row := results.of(cell)) and row.ratios]
    return int(given.require is not None and any(ratio < given.require for ratio in ratios))


if __name__ == "__main__":
    raise SystemExit(main())
