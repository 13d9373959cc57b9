"""Weights by name for model files (`w.attn_q`), and bytes by recipe for backends (`WeightSource`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from tensormill.errors import ModelError, ProgramError
from tensormill.gguf.types import GGMLType
from tensormill.program.recipe import Cut, Recipe

if TYPE_CHECKING:
    from tensormill.program.ir import Value
    from tensormill.program.tracer import Tracer

Bytes = npt.NDArray[np.uint8]
SUFFIXES = (".weight", "", ".bias")


class Tensor(Protocol):
    """What a tracer knows of a tensor: its type and its shape, slowest axis first."""

    @property
    def type(self) -> GGMLType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class File(Protocol):
    """A place that has tensors' bytes as rows, read-only; `tensormill.gguf.GGUFFile` is one."""

    def data(self, name: str) -> Bytes: ...
    def release(self, name: str) -> None: ...


def stem(name: str) -> str:
    """A tensor's name without its suffix."""
    return name.removesuffix(".weight")


def sidecar(g: Tracer, w: Value, suffix: str) -> Value | None:
    """The `.bias` or `.scale` (NVFP4) that stands beside a weight in the file, cut by the same rows; None if there is none."""
    recipe = w.recipe
    if recipe is None or len({c.tensor for c in recipe.cuts}) != 1 or not recipe.cuts[0].tensor.endswith(".weight"):
        return None
    cut = recipe.cuts[0]
    name = f"{stem(cut.tensor)}.{suffix}"
    if name not in g.tensors:
        return None
    t, beside = g.tensors[name], g.tensors[cut.tensor]
    if suffix == "bias" and t.shape != beside.shape[:-1]:
        raise ProgramError(f"{name} is {list(t.shape)}; the weight beside it is {list(beside.shape)}")
    whole = Recipe.whole(name, t.type, t.shape)
    return g.weight(whole.rows(*cut.rows) if suffix == "bias" and len(t.shape) == 1 else whole)


class Scope:
    """The tensors of a model, or of one block, as attributes: `w.attn_q` is `blk.3.attn_q.weight` in block 3's scope.

    `"attn_qkv" in w` asks whether the file has one; a missing tensor is a ModelError that names it.
    """

    def __init__(self, g: Tracer, prefix: str = "") -> None:
        self._g = g
        self._prefix = prefix

    def block(self, i: int) -> Scope:
        """Block i; values and caches traced from here on carry its name."""
        self._g.prefix = f"blk.{i}."
        return Scope(self._g, f"blk.{i}.")

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def __getattr__(self, name: str) -> Value:
        found = self._find(name)
        if found is None:
            raise ModelError(f"the file has no tensor {self._prefix}{name}.weight, which this architecture needs")
        t = self._g.tensors[found]
        return self._g.weight(Recipe.whole(found, t.type, t.shape))

    def __getitem__(self, name: str) -> Value:
        """A tensor whose name has a dot: `w["indexer.attn_q_b"]`."""
        return self.__getattr__(name)

    def _find(self, name: str) -> str | None:
        return next((n for s in SUFFIXES if (n := f"{self._prefix}{name}{s}") in self._g.tensors), None)


class WeightSource:
    """Recipes → bytes, read from a file only where a recipe says."""

    def __init__(self, file: File) -> None:
        self._file = file

    def pieces(self, recipe: Recipe) -> Iterator[tuple[GGMLType, Bytes]]:
        """Each cut's type and its rows [rows, row bytes] (experts one after another)."""
        for cut in recipe.cuts:
            yield cut.type, self._rows(cut)

    def float32(self, recipe: Recipe) -> npt.NDArray[np.float32]:
        """The whole weight decoded, in the recipe's shape (small weights, and the reference backend)."""
        from tensormill.quant import decode

        joined = np.concatenate([decode(t, np.ascontiguousarray(rows)) for t, rows in self.pieces(recipe)])
        shape = recipe.shape[::-1] if recipe.transposed else recipe.shape
        out = joined.reshape(shape)
        return np.ascontiguousarray(out.T) if recipe.transposed else out

    def int32(self, recipe: Recipe) -> npt.NDArray[np.int32]:
        """An I32 table, [rows, columns]."""
        return np.concatenate([rows.view(np.int32) for _type, rows in self.pieces(recipe)]).reshape(recipe.shape)

    def release(self, recipe: Recipe) -> None:
        """Tell the system that the mapped bytes of this recipe will not be read again."""
        for cut in recipe.cuts:
            self._file.release(cut.tensor)

    def _rows(self, cut: Cut) -> Bytes:
        data = self._file.data(cut.tensor)
        a, b = (c // cut.type.block * cut.type.block_bytes for c in cut.cols)
        if cut.experts is not None:
            per_expert = data.reshape(-1, self._rows_per_expert(cut, data), data.shape[-1])
            chosen = per_expert[cut.experts[0] : cut.experts[1], cut.rows[0] : cut.rows[1], a:b]
            return chosen.reshape(-1, b - a)
        return data[cut.rows[0] : cut.rows[1], a:b]

    def _rows_per_expert(self, cut: Cut, data: Bytes) -> int:
        tensors = getattr(self._file, "tensors", {})
        return int(tensors[cut.tensor].shape[1]) if cut.tensor in tensors else data.shape[0] // (cut.experts or (0, 1))[1]
