"""The disk tier of an engine: its pages and states as bytes, and the fingerprint of all that their numbers depend on."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import xxhash

import tensormill
from tensormill.cache import DiskTier, Files
from tensormill.config import bytes_of
from tensormill.gguf import GGUFFile

if TYPE_CHECKING:
    from tensormill.engine.engine import Engine

LAYOUT = 3  # of pages and snapshots in files: raise it when a backend lays them out otherwise
_SAMPLE = 4096  # bytes of each tensor's beginning, middle and end
Snapshot = dict[str, npt.NDArray[Any]]


def disk_tier(engine: Engine, folder: str) -> DiskTier:
    """Files in `folder` for what this engine computes; files of other models and settings may lie beside them."""
    files = Files(Path(folder).expanduser(), bytes_of(engine.config.kv_disk_size, "kv-disk-size"))
    return DiskTier(files, EngineDevice(engine), fingerprint(engine))


class EngineDevice:
    """An engine's executable, as the disk tier wants it."""

    def __init__(self, engine: Engine) -> None:
        executable = engine.executable
        self.read_page, self.write_page = executable.read_page, executable.write_page
        self._like: Snapshot = executable.snapshot(0)

    def pack(self, snapshot: Snapshot) -> bytes:
        """The arrays of a snapshot, by name."""
        return b"".join(np.ascontiguousarray(snapshot[name]).tobytes() for name in sorted(self._like))

    def unpack(self, data: bytes) -> tuple[Snapshot, int]:
        """A snapshot and its bytes; ValueError if they are not as many as this engine's states have."""
        if len(data) != sum(a.nbytes for a in self._like.values()):
            raise ValueError("a snapshot of other states")
        made: Snapshot = {}
        at = 0
        for name in sorted(self._like):
            like = self._like[name]
            made[name] = np.frombuffer(data, like.dtype, like.size, at).reshape(like.shape)
            at += like.nbytes
        return made, at


def fingerprint(engine: Engine) -> bytes:
    """The hash of what keys, values and states depend on beside tokens: the file, the program, how numbers are kept."""
    limits = engine.limits
    said = [
        tensormill.__version__, LAYOUT, engine.config.backend, limits.kv_type, limits.page, engine.context,
        limits.drafts if engine.stateful else 0, *engine.program.caches,
    ]  # fmt: skip
    state = xxhash.xxh128("\n".join(map(str, said)).encode())
    _add_file(state, engine.file)
    return state.digest()


def _add_file(state: xxhash.xxh128, file: GGUFFile) -> None:
    """Names, types, shapes and samples of all tensors, and the settings: reading every byte of a large file takes too long."""
    for name, tensor in file.tensors.items():
        rows = file.data(name).reshape(-1)
        state.update(f"{name} {tensor.type.name} {tensor.shape}".encode())
        for start in (0, len(rows) // 2, max(len(rows) - _SAMPLE, 0)):
            state.update(rows[start : start + _SAMPLE].tobytes())
    for key in file.metadata:
        if not key.startswith("tokenizer."):
            state.update(f"{key}={_told(file.metadata[key])}".encode())


def _told(value: object) -> str:
    if isinstance(value, np.ndarray):
        return xxhash.xxh128_hexdigest(np.ascontiguousarray(value).tobytes())
    return struct.pack("<d", value).hex() if isinstance(value, float) else repr(value)
