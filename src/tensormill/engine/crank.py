"""The crank: one turn plans a step over many requests, runs it, samples, and hands out what was made.

The scheduler decides, the cache keeps the books, the executable computes; here they meet. A request's tokens depend on nothing
but itself: not on its neighbours, its chunks, or guesses made for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.engine.answer import Answer
from tensormill.engine.grammar_work import GrammarWork
from tensormill.engine.messages import Cancel, Embed, Failed, Generate, Reply, Request, Score, Stats
from tensormill.engine.reader import Reader
from tensormill.errors import RequestError, TensorMillError
from tensormill.program import Run
from tensormill.scheduler import Scheduler, Sequence, Work
from tensormill.speculation import Governor, Proposer, Wish

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine

Rows = npt.NDArray[np.float32]


class Crank:
    """Many requests on one engine; single-threaded. `submit` and `cancel` between turns."""

    def __init__(
        self,
        engine: Engine,
        proposer: Proposer | None = None,
        governor: Governor | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.scheduler = Scheduler(engine.cache, budget=engine.chunk, stateful=engine.stateful)
        self._proposer = proposer or engine.proposer
        self._governor = governor or Governor()
        self._clock = clock
        self._answers: dict[str, Answer] = {}
        self._reader = Reader(engine)
        self._grammars = GrammarWork(engine)
        self._steps = self.computed = 0

    @property
    def busy(self) -> bool:
        """Whether a turn has anything to do."""
        return bool(self._answers) or self._grammars.waiting or self._reader.busy

    def take(self, request: Request) -> list[Reply]:
        """Take a message in; a reply at once only if it is refused."""
        if isinstance(request, Cancel):
            self.cancel(request.id)
            return []
        if isinstance(request, (Embed, Score)):
            return self._reader.add(request)
        return self.submit(request)

    def check_integrity(self) -> None:
        """The books of scheduler and cache agree (for tests, between turns)."""
        self.scheduler.check_integrity(self._reader.holdings)

    def stats(self) -> Stats:
        """How full the engine is, and what it has done so far."""
        scheduler, cache = self.scheduler, self.engine.cache
        held = {p for s in scheduler.running if s.holding for p in s.holding.tables[0] if p}
        return Stats(
            len(scheduler.running), len(scheduler.waiting), cache.usage(), len(held), self._steps, self.computed,
            scheduler.preemptions,
        )  # fmt: skip

    def submit(self, request: Generate) -> list[Reply]:
        """Queue a request; refuses, in words for its sender, what can never run."""
        try:
            self.engine.check_tokens(request.tokens)
            if request.id in self._answers or request.id in self._grammars:
                raise RequestError(f"there is a request {request.id!r} already")
            answer = Answer(request, self.engine, self._clock)
        except TensorMillError as error:
            return [Failed(request.id, str(error))]
        if request.grammar is None:
            self._add(answer)
        else:
            self._grammars.compile(request.id, request.grammar, answer)
        return []

    def _add(self, answer: Answer) -> None:
        self._answers[answer.sequence.id] = answer
        self.scheduler.add(answer.sequence)

    def cancel(self, id: str) -> None:
        """Stop a request and give back all it holds; unknown ids have ended already."""
        self._reader.cancel(id)
        self._grammars.forget(id)
        answer = self._answers.pop(id, None)
        if answer is not None:
            self._forget(answer.sequence)

    def turn(self) -> list[Reply]:
        """One step (and a chunk of a text to read); replies of the requests that got on."""
        ready, replies = self._grammars.compiled(wait=not self._answers and not self._reader.busy)
        for answer in ready:
            self._add(answer)
        if self._answers:
            replies += self._step()
        return replies + self._reader.turn(self.scheduler.pace.room(), alone=not self._answers)

    def _step(self) -> list[Reply]:
        self._guess()
        works = self.scheduler.plan()
        if not works:
            return []
        for work in works:
            self._prepare(work)
        started = self._clock()
        self._grammars.start_masks([(self._answers[w.sequence.id], w.tokens[w.sure :]) for w in works if w.wants])
        rows = self.engine.outputs([self._run(w) for w in works])["logits"]  # valid until the next step
        self._grammars.finish_masks()
        self._steps += 1
        self.computed += sum(len(w.tokens) for w in works)
        self._measure(works, self._clock() - started)
        replies: list[Reply] = []
        at = 0
        for work in works:
            n = len(work.tokens) - work.sure + 1 if work.wants else 0
            replies += self._accept(work, rows[at : at + n])
            at += n
        return replies

    def _measure(self, works: list[Work], seconds: float) -> None:
        """What a step of these took decides how much the next ones take on."""
        decoding = sum(len(w.tokens) for w in works if w.sequence.decoding)
        prompts = sum(len(w.tokens) for w in works) - decoding
        self.scheduler.pace.stepped(decoding, prompts, seconds)
        if not prompts:
            self._governor.stepped(decoding, seconds)

    def _guess(self) -> None:
        """Guesses for every decoding sequence that they may help, all at once."""
        if self._proposer is None:
            return
        decoding = [s for s in self.scheduler.running if s.decoding]
        wishes = [wish for s in decoding if (wish := self._wish(s, len(decoding)))]
        if not wishes:
            return
        started = self._clock()
        guesses = self._proposer.propose([wish for _, wish in wishes])
        self._governor.proposed(self._clock() - started, sum(map(len, guesses)), [s.id for s, _ in wishes])
        for (sequence, asked), guess in zip(wishes, guesses, strict=True):
            known = [t for t in guess if t < self.engine.n_vocab]
            sequence.drafts = self._answers[sequence.id].plausible(known, asked.most)

    def _wish(self, sequence: Sequence, decoding: int) -> tuple[Sequence, Wish] | None:
        """What may be guessed for a sequence: no further than it may go, and only in pages that can be had for nothing."""
        holding, length = sequence.holding, len(sequence.tokens)
        assert holding is not None
        limit = min(self.engine.limits.drafts, self._answers[sequence.id].left - 1)
        most = self._governor.most(sequence.id, limit, decoding) if limit > 0 else 0
        if not most or not self.engine.cache.reserve(holding, length + most):
            return None
        return sequence, Wish(sequence.id, sequence.tokens, most, holding.tables[0], holding.slot)

    def _prepare(self, work: Work) -> None:
        """What must be done before a sequence's first step: its recurrent states, if it resumes behind a snapshot."""
        holding = work.sequence.holding
        assert holding is not None
        self._answers[work.sequence.id].started()
        if holding.snapshot is not None:
            self.engine.executable.restore(holding.slot, holding.snapshot)
            holding.snapshot = None

    def _run(self, work: Work) -> Run:
        holding = work.sequence.holding
        assert holding is not None
        want = range(work.sure - 1, len(work.tokens)) if work.wants else ()
        return Run(
            work.tokens, past=work.past, sure=work.sure, pages=holding.tables, slot=holding.slot, base=work.sequence.base,
            want=list(want),
        )  # fmt: skip

    def _accept(self, work: Work, rows: Rows) -> list[Reply]:
        """Sample row after row while the drafts agree; then the books, and the reply."""
        answer = self._answers[work.sequence.id]
        drafts = work.tokens[work.sure :]
        accepted: list[int] = []
        for i, row in enumerate(rows):
            try:
                accepted.append(answer.sample(row))
            except TensorMillError as error:  # its grammar has become too costly, or its logits are no numbers
                self.cancel(work.sequence.id)
                kind = "request" if isinstance(error, RequestError) else "engine"
                return [Failed(work.sequence.id, str(error), kind)]
            if answer.finished or i >= len(drafts) or drafts[i] != accepted[-1]:
                break
        if work.wants:
            answer.guessed(len(drafts), len(accepted) - 1)
            if not answer.finished:
                self._governor.learned(work.sequence.id, len(drafts), len(accepted) - 1)
        self.scheduler.commit(work, accepted)
        if work.snapshot and work.sequence.holding is not None:
            self.engine.keep_snapshot(work.sequence.holding, work.snapshot)
        if answer.finished:
            del self._answers[work.sequence.id]
            self._forget(work.sequence)
        return [answer.reply()] if work.wants else []

    def _forget(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        self._governor.forget(sequence.id)
        if self._proposer is not None:
            self._proposer.forget(sequence.id)
