"""Reference: weights that are too large to decode whole: rows of embedding tables, experts of large stacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.program.recipe import Recipe
from tensormill.program.weights import WeightSource


class Lazy:
    """A weight of which rows or experts are decoded when asked for; nothing is kept."""

    def __init__(self, source: WeightSource, recipe: Recipe, real: npt.DTypeLike) -> None:
        self._source = source
        self._recipe = recipe
        self._real = real
        self.shape = recipe.shape

    def rows(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Rows of a matrix, [n] → [n, D]; of an I32 table as they are."""
        recipes = [self._recipe.rows(int(i), int(i) + 1) for i in ids]
        if self._recipe.cuts[0].type.name == "I32":
            return np.concatenate([self._source.int32(r) for r in recipes])
        return np.concatenate([self._source.float32(r) for r in recipes]).astype(self._real)

    def expert(self, number: int) -> npt.NDArray[Any]:
        """One expert's matrix [O, I] of a stack [E, O, I]."""
        cuts = []
        for cut in self._recipe.cuts:
            first = cut.experts[0] if cut.experts else 0
            cuts.append(replace(cut, experts=(first + number, first + number + 1)))
        one = Recipe(tuple(cuts), (1, *self._recipe.shape[1:]))
        return np.asarray(self._source.float32(one)[0], self._real)
