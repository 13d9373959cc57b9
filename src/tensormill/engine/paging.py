"""Pages of one sequence: which page holds which tokens, for every lifetime of a program's caches.

A whole-lifetime table has a page for every P tokens of the context. A window's table goes round a ring of pages just long
enough that no visible token is overwritten. Page 0 is scratch. The many-sequence pool is the scheduler's; this is the single session's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensormill.program import Program


class SinglePager:
    """Page tables for one sequence of at most `context` tokens, fed at most `chunk` at a time."""

    def __init__(self, windows: Iterable[int], context: int, chunk: int, page: int) -> None:
        whole = -(-context // page)
        self.page = page
        self.ring = {w: min(whole, -(-(w + chunk) // page) + 1) if w else whole for w in {0, *windows}}

    @staticmethod
    def windows_of(program: Program) -> set[int]:
        """The lifetimes of a program's paged caches."""
        return {c.window for c in program.caches if c.kind == "paged"}

    @property
    def pages(self) -> dict[int, int]:
        """Pages to allocate for each lifetime, scratch included."""
        return {w: n + 1 for w, n in self.ring.items()}

    def tables(self, tokens: int) -> dict[int, list[int]]:
        """Page numbers of a sequence that is `tokens` long."""
        needed = -(-tokens // self.page)
        return {w: [1 + i % n for i in range(needed)] for w, n in self.ring.items()}

    def can_resume(self, at: int, length: int) -> bool:
        """Whether a sequence of `length` tokens may be cut to `at` with every row that later tokens see still in its page."""
        last = (length - 1) // self.page
        return all(n > last or max(0, at - w) // self.page > last - n for w, n in self.ring.items())
