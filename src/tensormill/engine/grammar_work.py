"""What grammars cost, done beside the steps: compiling while others are answered, masks while the forward pass runs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from tensormill.engine.messages import Failed, Grammar, Reply
from tensormill.errors import RequestError

if TYPE_CHECKING:
    from tensormill.engine.answer import Answer
    from tensormill.engine.engine import Engine
    from tensormill.sampling.grammar import Matcher

_MOMENT = 0.02  # seconds: requests may arrive meanwhile, or be cancelled


class GrammarWork:
    """Requests whose grammar is being compiled, and the masks of the step under way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._compiling: dict[str, tuple[Answer, Future[Matcher]]] = {}
        self._masks: Future[None] | None = None

    @cached_property
    def _compiler(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "grammar-compiler")

    @cached_property
    def _masker(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "grammar-masks")

    @property
    def waiting(self) -> bool:
        """Whether a grammar is being compiled."""
        return bool(self._compiling)

    def __contains__(self, id: object) -> bool:
        return id in self._compiling

    def compile(self, id: str, grammar: Grammar, answer: Answer) -> None:
        """Begin to compile; the answer comes out of `compiled` when that is done."""
        self._compiling[id] = answer, self._compiler.submit(self._compiled, grammar)

    def _compiled(self, grammar: Grammar) -> Matcher:
        return self._engine.grammars.compile(grammar.kind, grammar.text)

    def compiled(self, *, wait: bool) -> tuple[list[Answer], list[Reply]]:
        """Answers that can begin, and refusals; `wait` a moment for them if there is nothing else to do."""
        if wait:
            futures.wait([future for _, future in self._compiling.values()], _MOMENT, futures.FIRST_COMPLETED)
        ready: list[Answer] = []
        refused: list[Reply] = []
        for id, (answer, future) in [(i, c) for i, c in self._compiling.items() if c[1].done()]:
            del self._compiling[id]
            error = future.exception()
            if isinstance(error, RequestError):
                refused.append(Failed(id, str(error)))
            elif error is not None:
                refused.append(Failed(id, f"compiling the grammar failed: {error!r}", "engine"))
            else:
                answer.matcher = future.result()
                ready.append(answer)
        return ready, refused

    def forget(self, id: str) -> None:
        """A request is cancelled."""
        if id in self._compiling:
            self._compiling.pop(id)[1].cancel()

    def start_masks(self, rows: Sequence[tuple[Answer, Sequence[int]]]) -> None:
        """Begin on the masks that a step's answers need: for the next token, and behind each draft."""
        bound = [(answer.matcher, drafts) for answer, drafts in rows if answer.matcher is not None]
        if bound:
            matchers, drafts = zip(*bound, strict=True)
            self._masks = self._masker.submit(self._engine.grammars.masks, matchers, drafts)

    def finish_masks(self) -> None:
        """Wait for them; the forward pass is over."""
        if self._masks is not None:
            self._masks.result()
            self._masks = None
