"""How large the caches are: pages for each lifetime, from how many sequences of how many tokens are to fit."""

from __future__ import annotations

from dataclasses import dataclass

from tensormill.program import Limits, Program
from tensormill.program.kv import KVType


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an engine makes room for: `sequences` at once, `tokens` of context in all of them together."""

    sequences: int = 1
    tokens: int = 8192
    chunk: int = 512
    rows: int = 1
    drafts: int = 0


def limits(program: Program, sizes: Sizes, kv_type: KVType) -> Limits:
    """Limits for which a backend plans its memory.

    A window's pages must cover, for every sequence, the window and the step in flight; as much again lets prefixes be resumed.
    """
    page = max([Limits().page, *(c.ratio for c in program.caches)])
    whole = -(-sizes.tokens // page) + sizes.sequences
    pages = {0: whole + 1}
    for window in {c.window for c in program.caches if c.kind == "paged" and c.window}:
        one = -(-(window + sizes.chunk + sizes.drafts) // page) + 2
        pages[window] = min(whole, 2 * one * sizes.sequences) + 1
    return Limits(
        tokens=sizes.chunk,
        sequences=sizes.sequences,
        rows=max(sizes.rows, sizes.sequences * (1 + sizes.drafts)),
        drafts=sizes.drafts,
        pages=pages,
        slots=sizes.sequences + 1,
        page=page,
        kv_type=kv_type,
    )


def is_stateful(program: Program) -> bool:
    """Whether a sequence has rings or recurrent states, which cannot rewind."""
    return any(c.kind != "paged" for c in program.caches)
