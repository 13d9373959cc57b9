"""What an answer must look like: a grammar compiled for one vocabulary, and the masks of tokens that it allows.

A `Matcher` follows one answer. Its masks depend on the answer alone, so they are computed while the forward pass runs; drafts
are judged by the masks behind them. Kinds of grammars and their checks: sources.py, schema.py, gbnf.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher, LLParserLimits

from tensormill.bounds import KEPT_GRAMMARS, KEPT_LETTERS
from tensormill.errors import RequestError
from tensormill.sampling.kept import Kept
from tensormill.sampling.sources import source
from tensormill.sampling.vocabulary import vocabulary
from tensormill.tokenizer import Tokenizer

Allowed = npt.NDArray[np.bool_]
Words = npt.NDArray[np.int32]


class Matcher:
    """One answer under its grammar; `accept` each token, `allowed` says what may come next."""

    def __init__(self, matcher: LLMatcher, vocabulary: int) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._rows: Words = np.empty((0, 0), np.int32)
        self._at = 0

    @property
    def complete(self) -> bool:
        """Whether the answer may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def closed(self) -> bool:
        """Whether nothing but an end may follow."""
        return bool(self._matcher.is_stopped())

    def fits(self, drafts: Sequence[int]) -> int:
        """How many of these tokens, in order, the grammar allows next."""
        known = next((i for i, t in enumerate(drafts) if t >= self._vocabulary), len(drafts))
        return self._matcher.validate_tokens(list(drafts[:known]))

    def forced(self) -> list[int]:
        """Tokens that spell what the grammar leaves no choice about; guesses, since other tokens may spell the same."""
        return self._matcher.compute_ff_tokens()

    def allowed(self, size: int) -> Allowed:
        """Which of `size` token ids may come next: from the masks made ahead, or made now."""
        if self._at >= len(self._rows):
            masks(None, [self], [()])
        row = np.unpackbits(self._rows[self._at].view(np.uint8), bitorder="little", count=self._vocabulary)
        out = np.zeros(size, np.bool_)
        count = min(size, self._vocabulary)
        out[:count] = row[:count]
        return out

    def accept(self, token: int) -> None:
        """Take note of the next token; RequestError if the grammar does not allow it, or has become too costly to follow."""
        self._at += 1
        if not self._matcher.consume_token(token):
            raise RequestError(f"the grammar cannot be followed: {_first_line(self._matcher.get_error())}")

    def end(self) -> None:
        """The answer ends here; RequestError if the grammar does not allow it, as when it ran into a limit."""
        if not self.complete:
            why = _first_line(self._matcher.get_error()) or self._matcher.stop_reason()
            raise RequestError(f"the grammar cannot be followed: {why}")

    def _begin(self, rows: Words) -> None:
        self._rows, self._at = rows, 0


def masks(executor: LLExecutor | None, matchers: Sequence[Matcher], drafts: Sequence[Sequence[int]]) -> None:
    """Make, for each matcher, the mask of the next token and those behind each of its drafts. Lets other threads run."""
    if not matchers:
        return
    words = -(-matchers[0]._vocabulary // 32)
    starts = np.cumsum([0, *(1 + len(d) for d in drafts)])
    rows = np.zeros((int(starts[-1]), words), np.int32)
    jobs = [(m._matcher, int(at), list(d)) for m, at, d in zip(matchers, starts, drafts, strict=False)]
    if executor is None:
        jobs[0][0].unsafe_compute_mask_ptr(rows.ctypes.data, 4 * words)
    else:
        drafted, plain = [job for job in jobs if job[2]], [job[:2] for job in jobs if not job[2]]
        if drafted:
            executor.unsafe_compute_mask_ptr_with_draft_token(drafted, rows.ctypes.data, 4 * words, len(rows))
        if plain:
            executor.unsafe_compute_mask_ptr(plain, rows.ctypes.data, 4 * words, len(rows))
    for matcher, start, draft in zip(matchers, starts, drafts, strict=False):
        matcher._begin(rows[start : start + 1 + len(draft)])


class Grammars:
    """Compiles grammars for one vocabulary; thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._vocabulary = vocabulary(tokenizer)
        self._compiled: Kept[LLMatcher] = Kept(KEPT_LETTERS, KEPT_GRAMMARS)
        self._executor = LLExecutor(num_threads=max(1, (os.cpu_count() or 1) // 4))
        self._limits = LLParserLimits(verbose_errors=False)

    def compile(self, kind: str, text: str) -> Matcher:
        """A matcher at its beginning for a grammar of a `kind` (json_object, json_schema, regex, lark, gbnf, composed).

        RequestError says what cannot be honoured, and where.
        """
        made = self._compiled.get(kind, text)
        if made is None:
            checked = source(kind, text)
            made = LLMatcher(self._vocabulary, checked, log_level=0, limits=self._limits)
            if made.is_error():
                raise RequestError(f"the {_WORDS.get(kind, kind)} cannot be used: {_first_line(made.get_error())}")
            begun = made.deep_copy()
            begun.compute_bitmask()
            if begun.is_stopped() and not begun.is_accepting():
                raise RequestError(f"the {_WORDS.get(kind, kind)} cannot be used: no text at all matches it")
            self._compiled.keep(kind, text, made, len(checked))
        return Matcher(made.deep_copy(), self._vocabulary.vocab_size)

    def masks(self, matchers: Sequence[Matcher], drafts: Sequence[Sequence[int]]) -> None:
        """As `masks`, several at a time."""
        masks(self._executor, matchers, drafts)


_WORDS = {
    "composed": "grammar of tools and answer",
    "json_schema": "JSON schema",
    "regex": "regular expression",
    "lark": "Lark grammar",
    "gbnf": "GBNF grammar",
}


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.split("<state>", maxsplit=1)[0].strip().splitlines() if line.strip()]
    return " ".join(lines)[:400]
