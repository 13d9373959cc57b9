"""Every value of one step on the reference backend: what other backends and engines are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tensormill.errors import RequestError
from tensormill.program import Run, build_step

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine


def values_of(engine: Engine, tokens: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
    """Run `tokens` as one step, wanting every row: each value by name, and the outputs under theirs.

    The engine must have been loaded for as many rows as tokens. RequestError if its backend keeps no values.
    """
    engine.check_tokens(tokens)
    if not hasattr(engine.executable, "values"):
        raise RequestError(f"the backend {engine.config.backend!r} keeps no values; use --backend reference")
    holding = engine.cache.open([])
    try:
        engine.cache.reserve(holding, len(tokens))
        run = Run(list(tokens), past=0, pages=holding.tables, slot=holding.slot, want=list(range(len(tokens))))
        ratios = sorted({cache.ratio for cache in engine.program.caches if cache.ratio > 1})
        step = build_step([run], components=engine.components, ratios=ratios)
        values = engine.executable.values(step)
    finally:
        engine.cache.close(holding)
    return {name: np.array(value) for name, value in cast(dict[str, npt.NDArray[Any]], values).items()}
