"""One step over several sessions of an engine: how batched decode is measured without a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensormill.errors import RequestError
from tensormill.program import Run

if TYPE_CHECKING:
    from tensormill.engine.session import Session


def feed_together(sessions: Sequence[Session], parts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
    """Append a few tokens to each session in one step; the logits [sessions, V] that follow the last of each, until the next.

    Raises RequestError if the caches have no room or the step is larger than the engine's chunk.
    """
    engine = sessions[0]._engine
    if sum(map(len, parts)) > engine.chunk:
        raise RequestError(f"{sum(map(len, parts))} tokens do not fit in one step of {engine.chunk}; raise --chunk")
    runs = [_run(session, list(part)) for session, part in zip(sessions, parts, strict=True)]
    logits: npt.NDArray[np.float32] = engine.outputs(runs)["logits"]
    for session, part in zip(sessions, parts, strict=True):
        session.tokens += part
        assert session._holding is not None
        engine.cache.commit(session._holding, session.tokens, len(session.tokens))
    return logits


def _run(session: Session, part: list[int]) -> Run:
    if session._holding is None:
        session.begin([])
    holding, past = session._holding, len(session.tokens)
    assert holding is not None
    if not session._engine.cache.reserve(holding, past + len(part)):
        raise RequestError(f"there is no room in the caches for {past + len(part)} tokens; raise --ctx")
    return Run(part, past=past, pages=holding.tables, slot=holding.slot, want=[len(part) - 1])
