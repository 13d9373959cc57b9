"""Makes the proposer that an engine is configured with: n-grams of a request's own text, and a draft model if one is named."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tensormill import models
from tensormill.engine.sizing import is_stateful
from tensormill.errors import ModelError
from tensormill.gguf import GGUFFile
from tensormill.program import Backend, Program, WeightSource
from tensormill.speculation import DraftModel, FirstOf, NGram, Proposer

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine


def proposer(engine: Engine) -> Proposer | None:
    """What guesses for an engine; None if nothing is to be guessed. Raises ModelError for a draft model that does not suit."""
    if not engine.limits.drafts:
        return None
    if engine.config.draft_model is None:
        return NGram()
    return FirstOf([NGram(least=4), draft_model(engine, engine.config.draft_model)])


def draft_model(engine: Engine, path: str) -> DraftModel:
    """A draft model compiled for the engine's pages, slots and steps."""
    file = GGUFFile(path)  # stays open with the weights that are mapped from it
    _check_vocabulary(engine, file)
    program: Program = models.trace(file, context=engine.context)["main"]
    lifetimes = sorted({0, *(c.window for c in program.caches if c.kind == "paged")})
    ratios = sorted({c.ratio for c in program.caches if c.ratio > 1})
    odd = [r for r in ratios if engine.limits.page % r]
    if odd:
        raise ModelError(f"{path} cannot draft here: it packs {odd[0]} tokens a row, and pages have {engine.limits.page}")
    pages = dict.fromkeys(lifetimes, engine.limits.pages[0])
    limits = replace(engine.limits, rows=engine.limits.sequences, pages=pages, memory=_left(engine))
    backend = cast(Backend, importlib.import_module(f"tensormill.backends.{engine.config.backend}"))
    positions = next((v for v in program.inputs if v.name == "positions"), None)
    return DraftModel(
        backend.compile(program, WeightSource(file), limits, threads=engine.config.threads),
        vocab=cast(int, program.outputs["logits"].shape[1]),
        page=limits.page,
        tokens=limits.tokens,
        lifetimes=lifetimes,
        ratios=ratios,
        components=cast(int, positions.shape[0]) if positions else 1,
        stateful=is_stateful(program),
    )


def _left(engine: Engine) -> int | None:
    """What the engine's own program leaves of the memory that was free before it was compiled."""
    most = engine.limits.memory
    return None if most is None else most - sum(engine.executable.bytes.values())


def _check_vocabulary(engine: Engine, file: GGUFFile) -> None:
    """A guess is a token id: both models must mean the same by it, as far as both have it."""
    key = "tokenizer.ggml.tokens"
    ours, theirs = (m.strings(key) if key in m else [] for m in (engine.metadata, file.metadata))
    common = min(len(ours), len(theirs))
    if ours[:common] != theirs[:common]:
        at = next(i for i in range(common) if ours[i] != theirs[i])
        raise ModelError(
            f"the draft model has another vocabulary: token {at} is {theirs[at]!r}, and {ours[at]!r} in the model it is to "
            "guess for; choose a smaller model of the same family, or leave --draft-model out"
        )
