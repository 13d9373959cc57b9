"""One request under way: its sampler, its text so far, why it ends, what it cost."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.engine.messages import Chance, Generate, Output, Usage
from tensormill.engine.thinking import Bound
from tensormill.sampling import Sampler, StopMatcher
from tensormill.scheduler import Sequence
from tensormill.tokenizer import Kind

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine
    from tensormill.sampling.grammar import Matcher

Logits = npt.NDArray[np.float32]
_CONTROL = (Kind.CONTROL, Kind.UNKNOWN)


class Answer:
    """Turns rows of logits into tokens and text, until something ends it."""

    def __init__(self, request: Generate, engine: Engine, clock: Callable[[], float]) -> None:
        self.sequence = Sequence(
            request.id, list(request.tokens), len(request.tokens), request.key, request.salt, request.priority
        )  # fmt: skip
        if engine.stateful:
            self.sequence.borders.update(_first_turn(request.tokens, engine))
        self._request = request
        self._engine = engine
        self._clock = clock
        self.matcher: Matcher | None = None  # its grammar, once compiled
        self._sampler = Sampler(request.sampling, engine.n_vocab, engine.tokenizer)
        self._sampler.begin(request.tokens)
        self._stream = engine.tokenizer.stream()
        self._stops = StopMatcher(request.sampling.stop)
        self._bound = Bound(request.thinking) if request.thinking else None
        self._made = self._drafted = self._accepted = 0
        self._arrived = clock()
        self._started = self._first = 0.0
        self._new: list[int] = []
        self._text = ""
        self._chances: list[Chance] = []
        self._finish: str | None = None
        self._matched: str | int | None = None

    @property
    def finished(self) -> bool:
        """Whether it has ended."""
        return self._finish is not None

    @property
    def left(self) -> int:
        """Tokens that it may still make."""
        most = self._request.sampling.max_tokens
        most = self._engine.context if most is None else most
        return min(most - self._made, self._engine.context - len(self.sequence.tokens))

    def started(self) -> None:
        """Its first step is about to run (called before every step)."""
        self._started = self._started or self._clock()

    def plausible(self, drafts: Seq[int], most: int) -> list[int]:
        """At most `most` guesses: what its grammar leaves no choice about, else the first of the drafts that it allows."""
        if self.matcher is None:
            return list(drafts[:most])
        return self.matcher.forced()[:most] or list(drafts[: min(most, self.matcher.fits(drafts))])

    def guessed(self, drafted: int, accepted: int) -> None:
        """Count drafts and how many of them were right."""
        self._drafted += drafted
        self._accepted += max(accepted, 0)

    def sample(self, logits: Logits) -> int:
        """The next token from its row [V]; ends the answer where that token, its text, or a limit says so."""
        grammar = self.matcher
        token = self._forced()
        if token is None:
            token = self._sampler.sample(logits, allowed=grammar.allowed(len(logits)) if grammar else None)
        self._first = self._first or self._clock()
        if self._request.sampling.max_tokens == 0:
            self._end("length")
            return token
        if token in self._engine.tokenizer.end_ids and (grammar or not self._request.sampling.ignore_eos):
            if grammar:
                grammar.end()
            self._end("stop", token)
            return token
        if grammar:
            grammar.accept(token)
        self._sampler.accept(token)
        self._made += 1
        self._new.append(token)
        if self._request.logprobs >= 0:
            self._chances.append(chance(logits, token, self._request.logprobs))
        shown = self._stream.push(token) if self._shows(token) else ""
        if self._bound:
            self._bound.accept(token, shown)
        text, stopped = self._stops.push(shown)
        self._text += text
        if stopped:
            self._end("stop", self._stops.matched)
        elif grammar and grammar.closed:
            grammar.end()
            self._end("stop")  # nothing can follow: no step is spent on the end token
        elif self._made == self._request.sampling.max_tokens:
            self._end("length")
        elif len(self.sequence.tokens) + len(self._new) > self._engine.context - 1:
            self._end("context")
        return token

    def _forced(self) -> int | None:
        """The token that must come, as soon as nothing forbids it: a character is whole, and the grammar lets it through."""
        token = self._bound.due() if self._bound else None
        if token is None or self._stream.pending or (self.matcher and not self.matcher.fits([token])):
            return None
        return token

    def _shows(self, token: int) -> bool:
        """Whether a token is text: control tokens only where the request wants to see them."""
        shows = self._request.shows
        return shows is None or token in shows or self._engine.tokenizer.kind(token) not in _CONTROL

    def _end(self, why: str, matched: str | int | None = None) -> None:
        self._finish, self._matched = why, matched
        if not self._stops.stopped:
            self._text += self._stops.push(self._stream.finish())[0] + self._stops.finish()

    def reply(self) -> Output:
        """What came since the last reply."""
        usage = self._usage() if self._finish else None
        out = Output(self._request.id, self._text, self._new, self._chances, self._finish, self._matched, usage)
        self._text, self._new, self._chances = "", [], []
        return out

    def _usage(self) -> Usage:
        start = self._arrived
        return Usage(
            prompt=self.sequence.prompt,
            cached=self.sequence.reused,
            output=self._made,
            queued=self._started - start,
            first=self._first - start,
            total=self._clock() - start,
            drafted=self._drafted,
            accepted=self._accepted,
        )


def _first_turn(tokens: Seq[int], engine: Engine) -> Seq[int]:
    """Where the first message of a chat ends, if it fills a page: what many users share (instructions, tools) stands in it."""
    page, kind = engine.limits.page, engine.tokenizer.kind
    found = next((i for i in range(page, len(tokens)) if kind(tokens[i]) is Kind.CONTROL), None)
    return [] if found is None else [found]


def chance(logits: Logits, token: int, top: int) -> Chance:
    """Log-probability of a token in the model's own distribution (no temperature, no mask), and of the likeliest `top`."""
    shifted = logits - logits.max()
    logp = shifted - np.log(np.exp(shifted).sum())
    best = np.argpartition(-logp, top)[:top] if top else np.empty(0, np.int64)
    best = best[np.lexsort((best, -logp[best]))]
    return Chance(token, float(logp[token]), [(int(i), float(logp[i])) for i in best])
