"""Which tokens run next: continuous batching at every step, chunked prefill under a token budget, preemption by recompute.

A step first takes every decoding sequence's token (and drafts), so that a long prompt never stalls them; what is left of the
budget, and of the time that these may wait (`pace.py`), goes to prompts, the started ones first. Waiting sequences are admitted
by priority, then to the key that was served least, then by arrival. When pages run out, the sequence that is last in that order
loses its own and waits in front; what the prefix tree still has of it need not be computed again. The first in order is never
preempted, so everything ends.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from tensormill.cache import Cache, Holding, Keep
from tensormill.scheduler.pace import Pace
from tensormill.scheduler.sequence import Sequence, Work


class Scheduler:
    """Plans steps of at most `budget` tokens for the sequences of one engine; `pace` is to be told how long they took."""

    def __init__(self, cache: Cache, *, budget: int, stateful: bool = False) -> None:
        self.cache = cache
        self.budget = budget
        self.stateful = stateful
        self.pace = Pace()
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []  # in order of admission
        self.preemptions = 0
        self._served: dict[str, int] = {}
        self._clock = 0

    def add(self, sequence: Sequence) -> None:
        """Take a sequence in; its tokens and those it may still make must fit in the page pool alone (the engine checks)."""
        self._clock += 1
        sequence.arrived = self._clock
        active = {s.key for s in (*self.waiting, *self.running)}
        floor = min((self._served[k] for k in active), default=0)
        self._served[sequence.key] = max(self._served.get(sequence.key, 0), floor)  # no credit for having been away
        for other in (*self.waiting, *self.running) if self.stateful else ():
            other.borders.add(common := self._common(other, sequence))
            sequence.borders.add(common)
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """A sequence is done or cancelled: it gives back everything at once."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence)

    def plan(self) -> list[Work]:
        """The next step; empty only if there is nothing to do."""
        works: list[Work] = []
        left = self.budget
        for decoding in (True, False):
            left = min(left, self.pace.room()) if works else left
            for sequence in [s for s in self.running if s.decoding is decoding]:
                if sequence in self.running and left > 0:
                    left -= self._plan_one(sequence, left, works)
        for sequence in sorted(self.waiting, key=self._order):
            if left <= 0 or not self.cache.free_slots:
                break
            if self._soon_shared(sequence):
                continue
            if not self._admit(sequence):
                break
            left -= self._plan_one(sequence, left, works)
        return works

    def commit(self, work: Work, accepted: Seq[int]) -> None:
        """A step ran: `accepted` are the sampled tokens it leads to, accepted drafts first (none unless it wanted logits)."""
        sequence = work.sequence
        if sequence.holding is None:
            return  # removed while the step ran
        sequence.base = work.past + work.sure
        sequence.past = sequence.base + max(len(accepted) - 1, 0)
        sequence.tokens += accepted
        sequence.drafts = []
        self._served[sequence.key] += len(work.tokens)
        self.cache.commit(sequence.holding, sequence.tokens, sequence.past)

    def _plan_one(self, sequence: Sequence, left: int, works: list[Work]) -> int:
        """Add a sequence's work; how many tokens it takes of the budget."""
        sure = min(sequence.todo, left)
        snapshot: Keep = ""
        most = left - sure
        if self.stateful and sequence.decoding:  # no guess leaps over a page's end: its states are worth a snapshot
            to_border = -(sequence.past + 1) % self.cache.page
            snapshot, most = "answer" if to_border == 0 else "", min(most, max(to_border - 1, 0))
        elif self.stateful:
            sure, snapshot = self._to_border(sequence, sure)
        wants = sure == sequence.todo
        drafts = sequence.drafts[:most] if wants else []
        if not self._make_room(sequence, sequence.past + sure + len(drafts), works):
            return 0
        new = sequence.tokens[sequence.past : sequence.past + sure] + drafts
        works.append(Work(sequence, sequence.past, new, sure, wants, snapshot))
        return len(new)

    def _to_border(self, sequence: Sequence, sure: int) -> tuple[int, Keep]:
        """Where a prompt's chunk of at most `sure` tokens ends, since states are kept there, and why they are."""
        holding, past, page = sequence.holding, sequence.past, self.cache.page
        assert holding is not None
        ends = (n // page * page for n in (*sequence.borders, holding.known, len(sequence.tokens) - 1))
        border = min((n for n in ends if past < n <= past + sure), default=0)
        if border:
            return border - past, "end"
        border = (past + sure) // page * page
        passing = border > past and border - holding.kept >= holding.spacing * page
        return (border - past, "passing") if passing else (sure, "")

    def _make_room(self, sequence: Sequence, length: int, works: list[Work]) -> bool:
        """Reserve pages, preempting whoever is last in order and not in this step; False if that is the sequence itself."""
        assert sequence.holding is not None
        busy = {w.sequence for w in works}
        while not self.cache.reserve(sequence.holding, length):
            victim = max((s for s in self.running if s not in busy), key=self._order)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _soon_shared(self, sequence: Sequence) -> bool:
        """Whether a prompt under way begins with whole pages of this one: waiting beats computing them twice."""
        return any(not o.decoding and o.past < self._common(o, sequence) for o in self.running)

    def _common(self, a: Sequence, b: Sequence) -> int:
        """Tokens of the whole pages that `b` may take from `a`."""
        page, at = self.cache.page, 0
        most = min(len(a.tokens), len(b.tokens) - 1) // page * page if a.salt == b.salt else 0
        while at < most and a.tokens[at : at + page] == b.tokens[at : at + page]:
            at += page
        return at

    def _admit(self, sequence: Sequence) -> bool:
        """Start a sequence if its next chunk finds pages without preempting anybody."""
        holding = self.cache.open(sequence.tokens, sequence.salt)
        sequence.holding, sequence.past, sequence.base = holding, holding.resumed, holding.resumed
        if not self.cache.reserve(holding, min(len(sequence.tokens), sequence.past + self.budget)):
            self._release(sequence)
            return False
        if not sequence.preempted:
            sequence.reused = holding.resumed
        self.waiting.remove(sequence)
        self.running.append(sequence)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        sequence.preempted += 1
        self.preemptions += 1
        self.waiting.append(sequence)

    def _release(self, sequence: Sequence) -> None:
        assert sequence.holding is not None
        self.cache.close(sequence.holding)
        sequence.holding, sequence.past, sequence.drafts = None, 0, []

    def _order(self, sequence: Sequence) -> tuple[int, int, int, int]:
        return (-sequence.priority, -min(sequence.preempted, 1), self._served[sequence.key], sequence.arrived)

    def check_integrity(self, others: Seq[Holding] = ()) -> None:
        """Nobody is lost or doubled, and the cache's books agree; `others` hold pages too, but are not scheduled."""
        assert not set(self.waiting) & set(self.running)
        assert all(s.holding is None and s.past == 0 for s in self.waiting)
        holdings = [s.holding for s in self.running if s.holding is not None]
        assert len(holdings) == len(self.running)
        assert all(s.past < len(s.tokens) for s in self.running)
        self.cache.check_integrity([*holdings, *others])
