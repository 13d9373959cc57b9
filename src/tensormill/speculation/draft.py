"""A small model that guesses for a large one: all decoding sequences together, on the large one's page numbers.

A page number means the same tokens in both, and each keeps its own rows for it. The draft model computes a sequence's rows only
when it is to guess for it: what it knows of each page is noted, so that shared prefixes are shared here too, and rows of
guesses that came true are not computed again. It never has a say in what is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensormill.program import Executable, Run, build_step
from tensormill.speculation.proposer import Wish

Rows = npt.NDArray[np.float32]


@dataclass(slots=True)
class _Known:
    """What the draft model has of one sequence: rows of its first `have` tokens."""

    slot: int = 0
    have: int = 0
    base: int = 0  # up to where its recurrent states are folded
    keys: list[int] = field(default_factory=list)  # of each whole page: what is in it and before it
    fed: list[int] = field(default_factory=list)  # guesses behind those tokens that have rows too


class DraftModel:
    """Guesses greedily with a compiled program of its own.

    `vocab`: how many tokens it has (others are read as its last one); `page`: tokens a page; `tokens`: most tokens a step;
    `lifetimes`: those of the program's caches, all on the whole one's pages; `stateful`: it has slots; `confidence`: a guess
    less likely than this is the last of its row.
    """

    def __init__(
        self,
        executable: Executable,
        *,
        vocab: int,
        page: int,
        tokens: int,
        lifetimes: Sequence[int] = (0,),
        ratios: Sequence[int] = (),
        components: int = 1,
        stateful: bool = False,
        confidence: float = 0.3,
    ) -> None:
        self._executable = executable
        self._vocab = vocab
        self._page = page
        self._tokens = tokens
        self._lifetimes = lifetimes
        self._ratios = ratios
        self._components = components
        self._stateful = stateful
        self._confidence = confidence
        self._known: dict[str, _Known] = {}
        self._holds: dict[int, int | str] = {}  # page → key of what is in it; of one that is not whole, who fills it
        self._owner: dict[int, str] = {}  # slot → whose states are in it

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        """For each wish the likeliest continuation; none for sequences that are still being read."""
        guesses: list[list[int]] = [[] for _ in wishes]
        ready = self._catch_up(wishes)
        while ready:
            tokens, likely = self._step([run for _, run in ready])
            left, going = self._tokens, []
            for (i, _), token, confident in zip(ready, tokens, likely, strict=True):
                guesses[i].append(token)
                if confident and len(guesses[i]) < wishes[i].most:
                    run = self._further(wishes[i], guesses[i])
                    left -= len(run.tokens)
                    going.append((i, run))
            ready = going if left >= 0 else []
        return guesses

    def forget(self, id: str) -> None:
        """A sequence has ended."""
        self._known.pop(id, None)

    @property
    def bytes(self) -> int:
        """Memory of its weights, caches and values."""
        return sum(self._executable.bytes.values())

    def _catch_up(self, wishes: Sequence[Wish]) -> list[tuple[int, Run]]:
        """Runs of all tokens that have no rows yet, where one step can hold them; else compute a part of them."""
        ready: list[tuple[int, Run]] = []
        left = self._tokens
        for i, wish in enumerate(wishes):
            known = self._synced(wish)
            todo = len(wish.tokens) - known.have
            if todo > left and (ready or not left):
                continue
            count = min(todo, left)  # the first that is far behind gets a step of its own
            end = known.have + count
            pages = self._tables(wish, known.have, end)
            want = None if count == todo else ()
            part = [min(t, self._vocab - 1) for t in wish.tokens[known.have : end]]
            run = Run(part, past=known.have, pages=pages, slot=wish.slot, base=known.base, want=want)
            if count == todo:
                ready.append((i, run))
            else:
                self._executable.run(build_step([run], components=self._components, ratios=self._ratios))
            left -= count
            known.have = known.base = end
        return ready

    def _further(self, wish: Wish, guesses: list[int]) -> Run:
        """The step behind a guess. States fold all that is past, so for them all guesses are in the step, unsure."""
        known = self._known[wish.id]
        past = known.have if self._stateful else known.have + len(guesses) - 1
        known.fed = list(guesses)
        pages = self._tables(wish, past, known.have + len(guesses))
        return Run(guesses[past - known.have :], past=past, sure=0, pages=pages, slot=wish.slot, base=known.base)

    def _tables(self, wish: Wish, start: int, end: int) -> dict[int, Sequence[int]]:
        """Page tables of a run that writes rows start…end; what those pages held is gone."""
        for page in wish.pages[start // self._page : -(-end // self._page)]:
            self._holds[page] = wish.id
        return dict.fromkeys(self._lifetimes, wish.pages)

    def _step(self, runs: list[Run]) -> tuple[list[int], list[bool]]:
        """The likeliest next token of each run, and whether it is likely."""
        out = self._executable.run(build_step(runs, components=self._components, ratios=self._ratios))
        logits: Rows = out["logits"]
        best = logits.argmax(axis=-1)
        top = logits[np.arange(len(best)), best]
        total = np.exp(logits - top[:, None]).sum(axis=-1)
        return [int(b) for b in best], [bool(t * self._confidence <= 1) for t in total]

    def _synced(self, wish: Wish) -> _Known:
        """What is known of a sequence, brought up to date with its tokens, pages and slot."""
        known = self._known.setdefault(wish.id, _Known())
        tokens, page = wish.tokens, self._page
        come_true = 0
        for guess, token in zip(known.fed, tokens[known.have :], strict=False):
            if guess != token:
                break
            come_true += 1
        expected = min(known.have + come_true, len(tokens) - 1)
        while len(known.keys) < len(tokens) // page:
            i = len(known.keys)
            known.keys.append(hash((known.keys[-1] if i else 0, tuple(tokens[i * page : (i + 1) * page]))))
        known.have, known.fed = min(self._valid(wish, known, expected), len(tokens) - 1), []
        if self._stateful and (self._owner.get(wish.slot), known.slot, known.have) != (wish.id, wish.slot, expected):
            known.have = known.base = 0  # its states are not in this slot
        known.base = known.base if self._stateful else known.have
        known.slot = wish.slot
        self._owner[wish.slot] = wish.id
        return known

    def _valid(self, wish: Wish, known: _Known, have: int) -> int:
        """How many rows of a sequence its pages hold, whoever computed them; `have`: as far as it did so itself."""
        valid = 0
        for i, page in enumerate(wish.pages):
            end = (i + 1) * self._page
            if have >= end and self._holds.get(page) == wish.id:
                self._holds[page] = known.keys[i]
            if i < len(known.keys) and self._holds.get(page) == known.keys[i]:
                valid = end
            else:
                return max(valid, have) if self._holds.get(page) == wish.id and have < end else valid
        return valid
