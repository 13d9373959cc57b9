"""Embeds texts for any dialect: ids, the engine's pooled rows, cut and normalised."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensormill.bounds import MOST_EMBEDDED
from tensormill.engine.messages import Embed, Embedded
from tensormill.server import aside
from tensormill.server.answering import fits, problem_of
from tensormill.server.preparing import check_length
from tensormill.server.problem import Problem
from tensormill.server.process import EngineError
from tensormill.server.request import Caller
from tensormill.server.served import ServedModel

Vector = npt.NDArray[np.float32]
_TOGETHER = 8


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Unit vectors [D] in the order of the texts, and how many tokens these had."""

    vectors: list[Vector]
    tokens: int


async def embed(
    model: ServedModel, texts: Sequence[str | list[int]], caller: Caller, id: str, *, dimensions: int = 0, pooling: str = "",
    param: str = "input", cut: bool = False,
) -> Embeddings:  # fmt: skip
    """The embeddings of texts or ids; Problem if one is empty or too long. `dimensions` 0: all; `pooling` "": the file's.

    `cut`: of texts that are too long the beginning is taken.
    """
    if len(texts) > MOST_EMBEDDED:
        raise Problem(f"{param} has {len(texts)} texts; at most {MOST_EMBEDDED} are embedded at once", param=param)
    ids = [await _ids(model, text, caller.key, param, cut) for text in texts]
    width = model.engine.info.n_embd if model.engine.info else 0
    if dimensions and not 0 < dimensions <= width:
        raise Problem(f"dimensions must be between 1 and {width}, not {dimensions}", param="dimensions")
    requests = [Embed(f"{id}.{i}", tokens, pooling or model.pooling, caller.key, caller.salt) for i, tokens in enumerate(ids)]
    waiting, vectors = iter(requests), dict[str, Vector]()

    async def some() -> None:
        for request in waiting:
            vectors[request.id] = _vector(await model.engine.embed(request), dimensions)

    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(together(texts)):
                group.create_task(some())
    except* EngineError as errors:
        failed = errors.exceptions[0]
    if isinstance(failed, EngineError):  # raised here: what is raised inside `except*` may come out as a group
        raise problem_of(failed)
    return Embeddings([vectors[request.id] for request in requests], sum(map(len, ids)))


def together(texts: Sequence[object]) -> int:
    """How many of the texts are given to the engine at a time: enough that it need not wait, and few to cancel."""
    return min(len(texts), _TOGETHER)


async def _ids(model: ServedModel, text: str | list[int], key: str, param: str, cut: bool) -> list[int]:
    """A text's ids, with `cut` no more than the context takes; Problem if it is empty or too long."""
    if isinstance(text, str):
        text = await aside.requests.run(key, _encoded, model, text, param, cut)
    await fits(model, len(text), param)
    return text


def _encoded(model: ServedModel, text: str, param: str, cut: bool) -> list[int]:
    info = model.engine.info
    if not cut or info is None:
        check_length(model, text, param)
        return model.tokenizer.encode(text, add_special=True)
    return model.tokenizer.encode(text[: info.context * (model.tokenizer.longest or 64)], add_special=True)[: info.context]


def _vector(embedded: Embedded, dimensions: int) -> Vector:
    vector = np.frombuffer(embedded.vector, "<f4")[: dimensions or None].astype(np.float64)
    length = float(np.linalg.norm(vector))
    return (vector / length if length > 0 else vector).astype(np.float32)
