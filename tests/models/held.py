"""A model file held in memory, so that thousands of broken ones can be traced without writing any."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from models import tiny
from tensormill.gguf import GGMLType, TensorInfo


class Held:
    """Keys and float32 tensors as `models.trace` wants them; change `metadata` and `arrays` at will before tracing."""

    def __init__(self, variant: str) -> None:
        made = model(variant)
        self.metadata: dict[str, object] = {"general.architecture": made.arch}
        self.metadata |= {k: as_stored(v) for k, v in made.keys.items()}
        self.arrays: dict[str, np.ndarray] = dict(made.tensors)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        return {n: TensorInfo(n, GGMLType.F32, a.shape, 0, a.nbytes) for n, a in self.arrays.items()}

    def data(self, name: str) -> np.ndarray:
        array = self.arrays[name]
        return np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.shape[-1] * 4)

    def release(self, name: str) -> None:
        """Nothing is mapped."""


@cache
def model(variant: str) -> tiny.Tiny:
    """A variant, drawn once."""
    return tiny.VARIANTS[variant].made(variant)


def as_stored(value: Any) -> object:
    """A key's value as the reader gives it."""
    return np.array(value) if isinstance(value, list) else value
