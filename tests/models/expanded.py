"""A model file with all its weights decoded to float32: with it the CPU backend rounds no activations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tensormill.gguf import GGMLType, GGUFFile, GGUFWriter
from tensormill.quant import decode


def expand(source: Path, target: Path) -> Path:
    """Write `target`, one tensor at a time."""
    with GGUFFile(source) as file:
        writer = GGUFWriter(target)
        for key, value in file.metadata.items():
            writer.add(key, value)
        for name, info in file.tensors.items():
            writer.add_tensor(name, _values(file, name), GGMLType.F32, info.shape)
        writer.write()
    return target


def _values(file: GGUFFile, name: str) -> Callable[[], np.ndarray]:
    info = file.tensors[name]
    return lambda: decode(info.type, file.data(name)).reshape(info.shape)
