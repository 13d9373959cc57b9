"""The table as a picture: ratios as bars, marks for what each should reach, shares of the limit beside them.

Colours and a transparent ground that are legible on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from versus.cells import Cell
from versus.results import Results, Row

INK, GOOD, SHORT, THEIRS = "#808080", "#3a9d6e", "#d08a2e", "#7d8fb3"


def draw(cells: Sequence[Cell], results: Results, path: Path) -> None:
    """Write a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update({"text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "font.size": 8})
    mpl.rcParams.update({"axes.edgecolor": INK, "svg.fonttype": "none"})
    shown = [(cell, row) for cell in cells if (row := results.of(cell)) and row.ratios]
    figure, (left, right) = plt.subplots(1, 2, sharey=True, width_ratios=(3, 2), figsize=(9, 1 + 0.17 * len(shown)))
    _ratios(left, shown)
    _shares(right, shown)
    left.set_yticks(range(len(shown)), [f"{_short(c.model)}  {c.test}" for c, _ in shown])
    left.set_ylim(len(shown) - 0.4, -0.6)
    for axes in (left, right):
        axes.patch.set_alpha(0)
        axes.grid(axis="x", color=INK, alpha=0.25, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130, transparent=True)
    plt.close(figure)


def _short(model: str) -> str:
    return model.removeprefix("random:").replace("qwen-coder-", "qwen ")


def _ratios(axes: Any, shown: Sequence[tuple[Cell, Row]]) -> None:
    values = [median(row.ratios) for _, row in shown]
    colours = [
        SHORT if cell.least.ratio and value < cell.least.ratio else GOOD for (cell, _), value in zip(shown, values, strict=True)
    ]
    axes.barh(range(len(shown)), [v - 1 for v in values], left=1, color=colours, height=0.7)
    for y, (cell, row) in enumerate(shown):
        axes.plot([min(row.ratios), max(row.ratios)], [y, y], color=INK, linewidth=1)
        if cell.least.ratio:
            axes.plot([cell.least.ratio] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=1.5)
    axes.set_xscale("log")
    lowest, highest = min([*values, 0.9]), max([*values, 2])
    ticks = [t for t in (0.01, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if lowest / 2 < t < 2 * highest]
    axes.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axes.set_xlim(lowest * 0.95, highest * 1.2)
    axes.minorticks_off()
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xlabel("TensorMill ÷ llama.cpp; thin line: spread; mark: at least (orange: not reached)")


def _shares(axes: Any, shown: Sequence[tuple[Cell, Row]]) -> None:
    for y, (cell, row) in enumerate(shown):
        if row.share is not None:
            short = cell.least.share is not None and row.share < cell.least.share
            axes.barh(y, 100 * row.share, color=SHORT if short else GOOD, height=0.7)
        if row.share is not None and cell.least.share:
            axes.plot([100 * cell.least.share] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=1.5)
        if row.their_share is not None:
            axes.plot(100 * row.their_share, y, "D", color=THEIRS, markersize=3.5)
    axes.set_xlabel("% of the limit (◆ llama.cpp)")
    axes.set_xlim(0, 110)
