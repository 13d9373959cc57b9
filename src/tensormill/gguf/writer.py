"""Writes GGUF files, version 2 or 3, whole or split in parts of a wanted size.

It stores bytes as they are given: quantising is in `tensormill.quant`. Reading is in `file`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tensormill.gguf.header import DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, MAX_KEY, MAX_NAME, VERSIONS
from tensormill.gguf.pack import pack_string, pack_value
from tensormill.gguf.types import GGMLType
from tensormill.gguf.values import ValueType

Array = np.ndarray[Any, np.dtype[Any]]
_TYPE_OF_DTYPE = {
    np.dtype(name): kind
    for name, kind in {
        "<f4": GGMLType.F32, "<f2": GGMLType.F16, "<f8": GGMLType.F64,
        "i1": GGMLType.I8, "<i2": GGMLType.I16, "<i4": GGMLType.I32, "<i8": GGMLType.I64,
    }.items()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    type: GGMLType
    shape: tuple[int, ...]
    nbytes: int
    data: Array | Callable[[], Array]

    def info(self, offset: int) -> bytes:
        """The tensor info as the file has it: fastest axis first, offset from the beginning of the data."""
        axes = self.shape[::-1]
        return pack_string(self.name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, self.type, offset)


class GGUFWriter:
    """Collects keys and tensors; `write` makes the file, or the parts if `max_part_bytes` is given and exceeded.

    A part holds at least one tensor, however large. ValueError for keys, shapes and types that no file can have.
    """

    def __init__(
        self, path: str | Path, version: int = 3, alignment: int = DEFAULT_ALIGNMENT, max_part_bytes: int | None = None
    ) -> None:
        if version not in VERSIONS:
            raise ValueError(f"version is {version}, not one of {VERSIONS}")
        if alignment <= 0 or alignment & (alignment - 1):
            raise ValueError(f"alignment is {alignment}, not a power of two")
        self.path = Path(path)
        self._version = version
        self._alignment = alignment
        self._max_part_bytes = max_part_bytes
        self._fields: dict[str, bytes] = {}
        self._tensors: dict[str, _Tensor] = {}
        if alignment != DEFAULT_ALIGNMENT:
            self.add("general.alignment", alignment, ValueType.UINT32)

    def add(self, key: str, value: object, type: ValueType | None = None) -> None:
        """Adds a key; `type` (of the items, for a list) where what `pack.pack_value` would choose is not wanted."""
        _check_name("key", key, MAX_KEY, self._fields)
        self._fields[key] = pack_value(value, type)

    def add_tensor(
        self,
        name: str,
        data: Array | Callable[[], Array],
        type: GGMLType | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        """Adds a float or integer array of the stored type, or uint8 rows [..., row_bytes] of an explicit `type`.

        Instead of an array a function that returns it may be given, with `type` and `shape` (NumPy order, elements):
        it is called while writing, so that one tensor at a time is in memory.
        """
        _check_name("tensor name", name, MAX_NAME, self._tensors)
        if callable(data):
            if type is None or shape is None:
                raise ValueError(f"{name!r}: data to be made later needs a type and a shape")
        else:
            if type is None:
                type = _TYPE_OF_DTYPE.get(data.dtype.newbyteorder("<"))
            if type is None:
                raise ValueError(f"{name!r}: an array of {data.dtype} needs a type")
            shape = shape if shape is not None else _shape(data, type)
        if not 0 < len(shape) <= MAX_DIMS or min(shape) < 1:
            raise ValueError(f"{name!r}: the shape {shape} needs 1 to {MAX_DIMS} axes, none of them empty")
        tensor = _Tensor(name, type, shape, type.row_bytes(shape[-1]) * prod(shape[:-1]), data)
        if not callable(data):
            _rows(tensor)
        self._tensors[name] = tensor

    def write(self) -> list[Path]:
        """Writes the file or its parts and returns the paths. A file appears under its name only when complete."""
        parts = self._parts()
        if len(parts) == 1:
            self._write_part(self.path, self._fields, parts[0])
            return [self.path]
        stem = self.path.name.removesuffix(".gguf")
        paths = [self.path.with_name(f"{stem}-{i + 1:05}-of-{len(parts):05}.gguf") for i in range(len(parts))]
        for number, (path, tensors) in enumerate(zip(paths, parts, strict=True)):
            self._write_part(path, self._part_fields(number, len(parts)), tensors)
        return paths

    def _parts(self) -> list[list[_Tensor]]:
        """Tensors in order, cut where the next one would make the part too large."""
        parts: list[list[_Tensor]] = [[]]
        size = sum(len(key) + len(value) for key, value in self._fields.items()) + 256 + self._alignment
        for tensor in self._tensors.values():
            more = self._padded(tensor.nbytes) + len(tensor.info(0))
            if self._max_part_bytes is not None and parts[-1] and size + more > self._max_part_bytes:
                parts.append([])
                size = 256 + self._alignment
            parts[-1].append(tensor)
            size += more
        return parts

    def _part_fields(self, number: int, count: int) -> dict[str, bytes]:
        fields = dict(self._fields) if number == 0 else {}
        if "general.alignment" in self._fields:
            fields["general.alignment"] = self._fields["general.alignment"]
        fields["split.no"] = pack_value(number, ValueType.UINT16)
        fields["split.count"] = pack_value(count, ValueType.UINT16)
        fields["split.tensors.count"] = pack_value(len(self._tensors), ValueType.INT32)
        return fields

    def _padded(self, size: int) -> int:
        return -(-size // self._alignment) * self._alignment

    def _write_part(self, path: Path, fields: dict[str, bytes], tensors: list[_Tensor]) -> None:
        # Beside the target, then renamed: a model that is mapped at the moment must not change under its reader.
        scratch = path.with_name(path.name + ".part")
        try:
            with scratch.open("wb") as file:
                self._write_all(file, fields, tensors)
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)

    def _write_all(self, file: BinaryIO, fields: dict[str, bytes], tensors: list[_Tensor]) -> None:
        file.write(MAGIC + struct.pack("<IQQ", self._version, len(tensors), len(fields)))
        for key, value in fields.items():
            file.write(pack_string(key) + value)
        offset = 0
        for tensor in tensors:
            file.write(tensor.info(offset))
            offset += self._padded(tensor.nbytes)
        for tensor in tensors:
            self._pad(file)
            file.write(_rows(tensor).data)
        self._pad(file)

    def _pad(self, file: BinaryIO) -> None:
        file.write(bytes(self._padded(file.tell()) - file.tell()))


def _check_name(what: str, name: str, limit: int, taken: dict[str, Any]) -> None:
    if not 0 < len(name.encode()) <= limit:
        raise ValueError(f"a {what} needs 1 to {limit} bytes: {name[:80]!r}")
    if name in taken:
        raise ValueError(f"the {what} {name!r} is given twice")


def _shape(data: Array, kind: GGMLType) -> tuple[int, ...]:
    if data.dtype != np.uint8:
        return data.shape or (1,)
    return (*data.shape[:-1], data.shape[-1] // kind.block_bytes * kind.block)


def _rows(tensor: _Tensor) -> Array:
    """The bytes to write; ValueError if they are not what type and shape say."""
    data = tensor.data() if callable(tensor.data) else tensor.data
    stored = _TYPE_OF_DTYPE.get(data.dtype.newbyteorder("<"))
    if data.dtype != np.uint8 and stored is not tensor.type:
        raise ValueError(f"{tensor.name!r}: an array of {data.dtype} is not {tensor.type.name}; encode it first")
    if data.nbytes != tensor.nbytes:
        wanted = f"{tensor.type.name} {list(tensor.shape)} of {tensor.nbytes} bytes"
        raise ValueError(f"{tensor.name!r}: {data.nbytes} bytes are given for {wanted}")
    little = np.ascontiguousarray(data, data.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8)
