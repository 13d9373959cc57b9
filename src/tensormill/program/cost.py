"""What an op costs: bytes of weights and caches, floating-point operations (OPS.md §3)."""

from __future__ import annotations

from tensormill.program.recipe import Recipe


def stored_bytes(recipe: Recipe) -> int:
    """Bytes that a weight takes in its file."""
    total = 0
    for cut in recipe.cuts:
        experts = cut.experts[1] - cut.experts[0] if cut.experts else 1
        total += experts * (cut.rows[1] - cut.rows[0]) * cut.type.row_bytes(cut.cols[1] - cut.cols[0])
    return total
