"""The table as text and as Markdown: each cell's numbers, what it should reach, and whether it does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from versus.cells import Cell, Goal
from versus.results import Results, Row

HEAD = (
    *("model", "test", "unit", "TensorMill", "llama.cpp", "setting", "ratio", "range"),
    *("of limit", "llama.cpp's", "at least", "", "aim", ""),
)
BEGIN, END = "<!-- the table -->", "<!-- end of the table -->"
VERDICT = {True: "yes", False: "no", None: "–"}


def rows(cells: Iterable[Cell], results: Results) -> list[tuple[str, ...]]:
    """A line for each cell that was measured."""
    return [_line(cell, row, results) for cell in cells if (row := results.of(cell))]


def _line(cell: Cell, row: Row, results: Results) -> tuple[str, ...]:
    ratios, setting = row.ratios, row.setting
    return (
        cell.model.removeprefix("random:"),
        cell.test + ("*" if row.disturbed else ""),
        cell.unit,
        number(median(row.ours)),
        number(median(row.theirs[setting])) if setting else "–",
        setting or "–",
        f"{median(ratios):.2f}" if ratios else "–",
        f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "–",
        _percent(row.share),
        _percent(row.their_share),
        goal(cell.least),
        VERDICT[row.meets(cell.least, results.rows)],
        goal(cell.aim),
        VERDICT[row.meets(cell.aim, results.rows)],
    )


def goal(of: Goal) -> str:
    """A goal in a few characters."""
    parts = [f"{of.ratio:g}×" if of.ratio else "", f"{of.share:.0%}" if of.share else "", f"≤ {of.most:g}" if of.most else ""]
    parts.append("> f16" if of.beats else "")
    return " ".join(filter(None, parts)) or "–"


def number(value: float) -> str:
    """Three or four digits that mean something."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def summary(cells: Sequence[Cell], results: Results) -> str:
    """How many goals are met."""
    told = []
    for name in ("least", "aim"):
        verdicts = [row.meets(getattr(c, name), results.rows) for c in cells if (row := results.of(c))]
        judged = [v for v in verdicts if v is not None]
        told.append(f"{'at least' if name == 'least' else 'aim'}: {sum(judged)} of {len(judged)}")
    missing = sum(results.of(c) is None for c in cells)
    return "; ".join(told) + (f"; {missing} cells not measured" if missing else "")


def text(cells: Sequence[Cell], results: Results) -> str:
    """For a terminal: parts under each other, columns aligned."""
    lines: list[tuple[str, ...]] = []
    for part in dict.fromkeys(c.part for c in cells):
        if made := rows([c for c in cells if c.part == part], results):
            lines += [(part, *HEAD[1:]), *made, ("",) * len(HEAD)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)] if lines else []
    aligned = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)
    return "\n".join([*aligned, summary(cells, results), *about(results)])


def about(results: Results) -> list[str]:
    """Where and how it was measured."""
    w, rounds = results.where, {len(row.ours) for row in results.rows.values()}
    least, most = min(rounds, default=0), max(rounds, default=0)
    span = f"{least}" if least == most else f"{least} to {most}"
    told = [
        f"{w.get('cpu')}, {w.get('threads')} threads; llama.cpp of llama-cpp-python {w.get('llama.cpp')}, {w.get('compiler')}, "
        f"native; median of {span} alternating rounds.",
    ]
    if any(row.disturbed for row in results.rows.values()):
        told.append("* another process was busy during a round: not to be quoted.")
    return told


def markdown(cells: Sequence[Cell], results: Results) -> str:
    """The table for a document."""
    lines = []
    for part in dict.fromkeys(c.part for c in cells):
        if made := rows([c for c in cells if c.part == part], results):
            lines += ["", f"**{part}**", "", _pipes(HEAD), _pipes(["---"] * len(HEAD)), *map(_pipes, made)]
    return "\n".join([*lines, "", summary(cells, results) + ".", "", *about(results)])


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def put_into(document: Path, table: str) -> None:
    """Replace what lies between the marks of a document, or append it with marks."""
    old = document.read_text("utf-8") if document.exists() else ""
    if BEGIN not in old:
        old = f"{old.rstrip()}\n\n{BEGIN}\n{END}\n".lstrip()
    before, rest = old.split(BEGIN, 1)
    document.write_text(f"{before}{BEGIN}\n{table.strip()}\n{END}{rest.split(END, 1)[1]}", "utf-8")
