"""Feeds a tiny model as a scheduler would: pages scattered, several sequences a step, drafts that are rejected.

It keeps, for each sequence, what the host must know: how much is past, where states are folded, which pages it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ops.tiny import Model
from tensormill.backends.reference import compile
from tensormill.program import Limits, Run, build_step

PAGE = 8


@dataclass
class Track:
    """One sequence: its slot, its past, its base, its page tables, and the logits of each index so far."""

    slot: int
    past: int = 0
    base: int = 0
    pages: dict[int, list[int]] = field(default_factory=dict)
    logits: dict[int, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Feed:
    """Tokens for a track; those after `sure` are drafts."""

    track: Track
    tokens: Sequence[int]
    sure: int | None = None


class Driver:
    def __init__(self, model: Model, *, drafts: int = 3, seed: int = 0, precision: Any = np.float32) -> None:
        self.model = model
        self.limits = Limits(
            tokens=256,
            sequences=6,
            rows=256,
            drafts=drafts,
            pages=dict.fromkeys(model.lifetimes, 60),
            slots=9,
            page=PAGE,
            kv_type="f32",
        )
        self.executable = compile(model.program, model.source, self.limits, precision=precision)
        draw = np.random.default_rng(seed)
        self.free = {w: list(draw.permutation(np.arange(1, 60))) for w in model.lifetimes}
        self.slots = list(draw.permutation(np.arange(1, 9)))

    def track(self) -> Track:
        return Track(int(self.slots.pop()), pages={w: [] for w in self.model.lifetimes})

    def feed(self, *feeds: Feed) -> dict[str, np.ndarray]:
        """One step of all feeds; every row's logits are wanted and kept. Drafts stay until `accept` says how many hold."""
        runs = []
        for f in feeds:
            t = f.track
            for w, pages in t.pages.items():
                while len(pages) * PAGE < t.past + len(f.tokens):
                    pages.append(int(self.free[w].pop()))
            runs.append(Run(f.tokens, t.past, f.sure, dict(t.pages), t.slot, t.base, range(len(f.tokens))))
        out = self.executable.run(build_step(runs, ratios=self.model.ratios))
        row = 0
        for f in feeds:
            t = f.track
            for i in range(len(f.tokens)):
                t.logits[t.past + i] = out["logits"][row].copy()  # an output lives until the next run
                row += 1
            sure = len(f.tokens) if f.sure is None else f.sure
            t.base = t.past + sure
            t.past += sure  # as if all drafts were rejected: a smaller past
        return out

    def accept(self, track: Track, drafts: int) -> None:
        """So many of the last step's drafts hold."""
        track.past += drafts

    def drop_window(self, track: Track) -> None:
        """Give back the pages that windows have passed; their numbers turn to scratch and their rows to poison."""
        for w, pages in track.pages.items():
            for i, page in enumerate(pages):
                if w and page and (i + 1) * PAGE <= track.past - w:
                    self.poison(w, page)
                    self.free[w].insert(0, page)
                    pages[i] = 0

    def poison(self, lifetime: int, page: int) -> None:
        for cache, store in self.executable.stores.items():
            if cache.kind == "paged" and cache.window == lifetime:
                store.k[page] = np.nan
                if store.v is not None:
                    store.v[page] = np.nan

    def fork(self, source: Track) -> Track:
        """A new track behind the source's past (= base): whole pages shared, the last partial page copied, slot restored."""
        assert source.past == source.base
        new = replace(self.track(), past=source.past, base=source.base, logits=dict(source.logits))
        for w, pages in source.pages.items():
            new.pages[w] = pages[: source.past // PAGE]
            if source.past % PAGE:
                new.pages[w].append(int(self.free[w].pop()))
                self.executable.copy_page(w, pages[source.past // PAGE], new.pages[w][-1])
        self.executable.restore(new.slot, self.executable.snapshot(source.slot))
        return new


def whole(model: Model, tokens: Sequence[int], *, precision: Any = np.float32) -> np.ndarray:
    """Logits of every token, fed in one step on fresh pages."""
    d = Driver(model, precision=precision)
    track = d.track()
    d.feed(Feed(track, tokens))
    return np.stack([track.logits[i] for i in range(len(tokens))])
