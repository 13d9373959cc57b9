"""Embeds texts for any dialect: ids, the engine's pooled rows, cut and normalised."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensormill.engine.messages import Embed, Embedded
from tensormill.server.answering import fits, problem_of, threads
from tensormill.server.problem import Problem
from tensormill.server.process import EngineError
from tensormill.server.request import Caller
from tensormill.server.served import ServedModel

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Unit vectors [D] in the order of the texts, and how many tokens these had."""

    vectors: list[Vector]
    tokens: int


async def embed(
    model: ServedModel, texts: Sequence[str | list[int]], caller: Caller, id: str, *, dimensions: int = 0, pooling: str = "",
    param: str = "input",
) -> Embeddings:  # fmt: skip
    """The embeddings of texts or ids; Problem if one is empty or too long. `dimensions` 0: all; `pooling` "": the file's."""
    ids = await asyncio.get_running_loop().run_in_executor(threads, _ids, model, texts)
    for tokens in ids:
        await fits(model, len(tokens), param)
    width = model.engine.info.n_embd if model.engine.info else 0
    if dimensions and not 0 < dimensions <= width:
        raise Problem(f"dimensions must be between 1 and {width}, not {dimensions}", param="dimensions")
    requests = [Embed(f"{id}.{i}", tokens, pooling or model.pooling, caller.key, caller.salt) for i, tokens in enumerate(ids)]
    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(model.engine.embed(r)) for r in requests]
    except* EngineError as errors:
        failed = errors.exceptions[0]
    if isinstance(failed, EngineError):  # raised here: what is raised inside `except*` may come out as a group
        raise problem_of(failed)
    return Embeddings([_vector(t.result(), dimensions) for t in tasks], sum(map(len, ids)))


def _ids(model: ServedModel, texts: Sequence[str | list[int]]) -> list[list[int]]:
    return [t if isinstance(t, list) else model.tokenizer.encode(t, add_special=True) for t in texts]


def _vector(embedded: Embedded, dimensions: int) -> Vector:
    vector = np.frombuffer(embedded.vector, "<f4")[: dimensions or None].astype(np.float64)
    length = float(np.linalg.norm(vector))
    return (vector / length if length > 0 else vector).astype(np.float32)
