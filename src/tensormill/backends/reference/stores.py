"""Reference: where caches live: real pages and slots, NaN until written, so that nobody multiplies what is not theirs.

Pages and rings are addressed as OPS.md §2 says; no copy is made and nothing is undone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.reference.frame import Sequence
from tensormill.errors import BackendError, ProgramError
from tensormill.program.backend import Limits
from tensormill.program.ir import Cache
from tensormill.program.kv import check_kv_type, rounded

Array = npt.NDArray[Any]


class PagedStore:
    """Keys [pages, P/ratio, G, K] and perhaps values, rounded to the KV type."""

    def __init__(self, cache: Cache, limits: Limits, real: npt.DTypeLike) -> None:
        if limits.page % cache.ratio:
            raise BackendError(f"{cache.name}: a page of {limits.page} tokens is no multiple of ratio {cache.ratio}")
        if cache.window not in limits.pages:
            raise BackendError(f"{cache.name}: the limits name no pages for lifetime {cache.window}")
        self.cache = cache
        self.per_page = limits.page // cache.ratio
        check_kv_type(cache, limits.kv_type)
        self.kv_type = limits.kv_type
        self.halves = limits.kv_type == "f16" and cache.v is None  # float16, number by number
        dtype = np.float16 if self.halves else real
        size = (limits.pages[cache.window], self.per_page)
        self.k = np.full((*size, *cache.k), np.nan, dtype)
        self.v = None if cache.v is None else np.full((*size, *cache.v), np.nan, dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all pages."""
        return self.k.nbytes + (0 if self.v is None else self.v.nbytes)

    def write(self, sequence: Sequence, entries: Array, k: Array, v: Array | None) -> None:
        """Store rows at their entries (token index div ratio)."""
        at = self._places(sequence, entries)
        with np.errstate(over="ignore"):
            self.k[at] = self._rounded(k, keys=True)
            if self.v is not None:
                assert v is not None, f"{self.cache.name} keeps values"
                self.v[at] = self._rounded(v, keys=False)

    def read(self, sequence: Sequence, entries: Array) -> tuple[Array, Array | None]:
        """Keys and values of entries, [n, G, K] and [n, G, Kv], as stored."""
        at = self._places(sequence, entries)
        return self.k[at], None if self.v is None else self.v[at]

    def _rounded(self, x: Array, *, keys: bool) -> Array:
        return x if self.kv_type == "f32" or self.halves else rounded(x, self.kv_type, keys=keys)

    def copy(self, source: int, target: int) -> None:
        """One page over another."""
        for part in (self.k, self.v):
            if part is not None:
                part[target] = part[source]

    def _places(self, sequence: Sequence, entries: Array) -> tuple[Array, Array]:
        table = sequence.pages.get(self.cache.window, np.zeros(0, np.int32))
        numbers = entries // self.per_page
        pages = table[numbers] if len(numbers) == 0 or numbers.max() < len(table) else np.zeros(1, np.int32)
        if (pages == 0).any():
            raise ProgramError(f"{self.cache.name}: a sequence has no page for some of rows {entries.min()}…{entries.max()}")
        return pages, entries % self.per_page


class RingStore:
    """The last rows of a sequence, [slots, back + B + drafts, width] with B = 1; row = index mod length."""

    def __init__(self, limits: Limits, width: int, back: int, real: npt.DTypeLike) -> None:
        self.back = back
        self.rows = np.full((limits.slots, back + 1 + limits.drafts, width), np.nan, real)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self.rows.nbytes

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Rows of indices start…stop, [stop − start, width]."""
        assert stop - start <= self.rows.shape[1], "the ring does not reach back so far"
        return np.asarray(self.rows[slot, np.arange(start, stop) % self.rows.shape[1]])

    def write(self, slot: int, first: int, rows: Array) -> None:
        """Store rows of indices first… ; only the last `length` of them survive."""
        kept = rows[-self.rows.shape[1] :]
        start = first + len(rows) - len(kept)
        self.rows[slot, np.arange(start, start + len(kept)) % self.rows.shape[1]] = kept


class StateStore:
    """States [slots, …] at `base`, and a ring of the op's inputs since (B = 1: one row and the drafts)."""

    def __init__(self, cache: Cache, limits: Limits, width: int, real: npt.DTypeLike) -> None:
        self.states = np.full((limits.slots, *cache.shape), np.nan, real)
        self.inputs = RingStore(limits, width, 0, real)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self.states.nbytes + self.inputs.nbytes

    def load(self, sequence: Sequence) -> Array:
        """The state at base; zeros at the start of a sequence."""
        state = self.states[sequence.slot]
        return np.zeros_like(state) if sequence.base == 0 else np.copy(state)
