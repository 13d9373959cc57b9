"""Runs engines over a text, cut and scored as llama-perplexity does it.

Every chunk of `context` tokens is a sequence of its own that begins with BOS, where the vocabulary wants one; the tokens of its
second half are scored, each on at least half a chunk of what came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tensormill.errors import RequestError
from tensormill.evals.divergence import Divergence, Perplexity

if TYPE_CHECKING:
    from tensormill.engine import Engine, Session

Progress = Callable[[int, int], None]  # chunks done, chunks in all


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence; those behind position `first` are scored."""

    tokens: list[int]
    first: int

    @property
    def targets(self) -> npt.NDArray[np.int64]:
        """The scored tokens: what follows positions `first` to the last but one."""
        return np.array(self.tokens[self.first + 1 :], np.int64)


def cut(tokens: Sequence[int], context: int, *, bos: int | None = None, most: int = 0) -> list[Chunk]:
    """Whole chunks of `context` tokens, at most `most` (0: all), their first token replaced by `bos`.

    RequestError if the text is not enough for one.
    """
    if context < 4:
        raise RequestError(f"chunks of {context} tokens are too short to score; give --ctx 4 or more")
    count = len(tokens) // context
    if not count:
        raise RequestError(
            f"the text has {len(tokens)} tokens, and one chunk needs {context}; give more text or a smaller --ctx"
        )
    parts = (list(tokens[i * context : (i + 1) * context]) for i in range(min(count, most or count)))
    return [Chunk(part if bos is None else [bos, *part[1:]], context // 2) for part in parts]


def perplexity(engine: Engine, chunks: Sequence[Chunk], progress: Progress | None = None) -> Perplexity:
    """The perplexity of a text."""
    found = Perplexity()
    for (logits,), targets in _scored([engine], chunks, progress):
        found.add(logits, targets)
    return found


def compare(engine: Engine, base: Engine, chunks: Sequence[Chunk], progress: Progress | None = None) -> Divergence:
    """How far an engine's distributions are from another's on a text; both must know the same tokens."""
    if engine.n_vocab != base.n_vocab:
        raise RequestError(f"the base knows {base.n_vocab} tokens and the model {engine.n_vocab}: they cannot be compared")
    found = Divergence()
    for (mine, its), targets in _scored([engine, base], chunks, progress):
        found.add(its, mine, targets)
    return found


def _scored(
    engines: Sequence[Engine], chunks: Sequence[Chunk], progress: Progress | None
) -> Iterator[tuple[list[npt.NDArray[np.float32]], npt.NDArray[Any]]]:
    """Rows of logits of each engine, few enough for memory, and the tokens that follow them."""
    rows = min(min(e.limits.rows, e.chunk) for e in engines)
    sessions = [e.session() for e in engines]
    try:
        for number, chunk in enumerate(chunks):
            for session in sessions:
                _begin(session, chunk.tokens[: chunk.first])
            targets = chunk.targets
            for at in range(0, len(targets), rows):
                part = targets[at : at + rows]
                fed = chunk.tokens[chunk.first + at :][: len(part)]
                yield [session.logits(fed, rows) for session in sessions], part
            if progress:
                progress(number + 1, len(chunks))
    finally:
        for session in sessions:
            session.end()


def _begin(session: Session, tokens: list[int]) -> None:
    resumed = session.begin(tokens)
    session.feed(tokens[resumed:])
