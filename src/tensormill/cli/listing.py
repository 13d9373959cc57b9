"""Listings on stdout: aligned plain text that a pipe can read, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any


def table(rows: Iterable[Sequence[object]], right: Iterable[int] = ()) -> str:
    """Rows as columns, those in `right` aligned to the right; two spaces between."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    right = set(right)
    lines = (
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def size(count: int) -> str:
    """Bytes in words: 97.2 MB (powers of ten, as file managers have it)."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


def print_json(value: Any) -> None:
    """One JSON value, indented."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=True))
