"""One step: T tokens of S sequences of any mix of prefill, decode and draft tokens (OPS §1).

The host builds a step from what the scheduler decided; no field comes from a device. `build_step` is the only maker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tensormill.errors import ProgramError

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


_COUNTED = {"T": "tokens", "S": "past", "R": "out_rows", "M": "media_rows"}


@dataclass(frozen=True, slots=True)
class Run:
    """The tokens of one sequence in a step.

    `past` rows are in the caches; the first `sure` of the new tokens cannot be rejected (all, if None); `pages` names the page
    of each P tokens, a table for each lifetime (0 = whole, else the window); `base`: where its recurrent states are folded;
    `want`: offsets whose logits are wanted (None: the last); `until`: last index each token may see (None: its own).
    """

    tokens: Sequence[int] | Ints
    past: int = 0
    sure: int | None = None
    pages: Mapping[int, Sequence[int]] = field(default_factory=dict)
    slot: int = 0
    base: int | None = None
    want: Sequence[int] | None = None
    until: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """The arrays of OPS §1; int32 throughout, media float32."""

    tokens: Ints  # [T]
    kind: Ints  # [T] 0 text, 1 image, 2 audio
    index: Ints  # [T] place in its sequence
    positions: Ints  # [c, T] what RoPE sees
    until: Ints  # [T] last visible index
    seq_start: Ints  # [S+1]
    past: Ints  # [S]
    sure: Ints  # [S]
    pages: Mapping[int, Ints]  # lifetime → [S, ·]
    slot: Ints  # [S]
    base: Ints  # [S]
    out_rows: Ints  # [R]
    done: Mapping[int, Ints]  # ratio → [C_r] token rows that complete an entry
    adapter: Ints  # [T]
    media_rows: Ints  # [M]
    media: Floats  # [M, ·]

    def size(self, symbol: str) -> int:
        """What a symbolic dimension is in this step."""
        if symbol.startswith("C"):
            return len(self.done[int(symbol[1:])])
        return len(getattr(self, _COUNTED[symbol]))

    def sequence_of_rows(self) -> Ints:
        """Which sequence each token row belongs to, [T]."""
        return np.repeat(np.arange(len(self.past), dtype=np.int32), np.diff(self.seq_start))


def build_step(runs: Sequence[Run], *, components: int = 1, ratios: Sequence[int] = ()) -> Step:
    """Lay out runs one after another; `components` of position (1 for text), `ratios` of the program's compressed caches."""
    if not runs or any(len(r.tokens) == 0 for r in runs):
        raise ProgramError("a step needs at least one token of each of its sequences")
    if all(len(r.tokens) == 1 and r.until is None and r.sure in (None, 1) and _last_only(r) for r in runs):
        return _decode(runs, components, ratios)
    lengths = [len(r.tokens) for r in runs]
    start = np.concatenate([[0], np.cumsum(lengths)])
    index = np.concatenate([r.past + np.arange(n) for r, n in zip(runs, lengths, strict=True)])
    until = np.concatenate(
        [i if r.until is None else np.asarray(r.until) for r, i in zip(runs, np.split(index, start[1:-1]), strict=True)]
    )
    want = [[n - 1] if r.want is None else list(r.want) for r, n in zip(runs, lengths, strict=True)]
    rows = np.arange(len(index))
    return Step(
        tokens=_ints(np.concatenate([np.asarray(r.tokens) for r in runs])),
        kind=_ints(np.zeros(len(index))),
        index=_ints(index),
        positions=_ints(np.tile(index, (components, 1))),
        until=_ints(until),
        seq_start=_ints(start),
        past=_ints([r.past for r in runs]),
        sure=_ints([n if r.sure is None else r.sure for r, n in zip(runs, lengths, strict=True)]),
        pages=_tables(runs),
        slot=_ints([r.slot for r in runs]),
        base=_ints([r.past if r.base is None else r.base for r in runs]),
        out_rows=_ints([s + o for s, offsets in zip(start, want, strict=False) for o in offsets]),
        done={r: _ints(rows[(index + 1) % r == 0]) for r in ratios},
        adapter=_ints(np.full(len(index), -1)),
        media_rows=_ints([]),
        media=np.zeros((0, 0), np.float32),
    )


def _last_only(run: Run) -> bool:
    return run.want is None or tuple(run.want) == (0,)


def _decode(runs: Sequence[Run], components: int, ratios: Sequence[int]) -> Step:
    """A step of one token of each sequence, as `build_step` says, without the general way's many small arrays."""
    n = len(runs)
    bases = [r.past if r.base is None else r.base for r in runs]
    # One array for all: between two steps each costs as much as a small op.
    made = np.array([*(r.tokens[0] for r in runs), *(r.past for r in runs), *(r.slot for r in runs), *bases], np.int32)
    tokens, index, slot, base = made[:n], made[n : 2 * n], made[2 * n : 3 * n], made[3 * n :]
    rows, ones, zeros, adapter, none, media = _constant(n)
    return Step(
        tokens=tokens,
        kind=zeros,
        index=index,
        positions=index[None] if components == 1 else np.repeat(index[None], components, axis=0),
        until=index,
        seq_start=rows,
        past=index,
        sure=ones,
        pages=_tables(runs),
        slot=slot,
        base=base,
        out_rows=rows[:n],
        done={r: rows[:n][(index + 1) % r == 0] for r in ratios},
        adapter=adapter,
        media_rows=none,
        media=media,
    )


@lru_cache(maxsize=64)
def _constant(n: int) -> tuple[Ints, Ints, Ints, Ints, Ints, Floats]:
    """What all steps of n single tokens share: 0…n, ones, zeros, no adapters, no media."""
    made = np.arange(n + 1, dtype=np.int32), *(np.full(n, x, np.int32) for x in (1, 0, -1)), np.zeros(0, np.int32)
    media = np.zeros((0, 0), np.float32)
    for array in (*made, media):
        array.flags.writeable = False
    rows, ones, zeros, adapter, none = made
    return rows, ones, zeros, adapter, none, media


def _tables(runs: Sequence[Run]) -> dict[int, Ints]:
    if len(runs) == 1:
        return {w: np.array([row], np.int32) for w, row in runs[0].pages.items()}
    return {w: _table([r.pages.get(w, ()) for r in runs]) for w in sorted({w for r in runs for w in r.pages})}


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(values, np.int32)


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    table = np.zeros((len(rows), max(map(len, rows))), np.int32)  # page 0 is scratch: nobody's
    for out, row in zip(table, rows, strict=True):
        out[: len(row)] = row
    return table
