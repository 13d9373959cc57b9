"""Reads the head of one GGUF file: magic, metadata fields, tensor infos, and checks that all of it fits.

Versions 2 and 3, little-endian. Joining split files is in `file`; decoding values in `metadata`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from mmap import mmap

from tensormill.errors import GGUFError
from tensormill.gguf.cursor import Cursor
from tensormill.gguf.metadata import Field, Metadata
from tensormill.gguf.types import TYPE_BY_ID, GGMLType
from tensormill.gguf.values import DTYPES, ValueType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_KEY = 65535  # bytes, by the GGUF specification
MAX_NAME = 1024  # bytes; ggml itself stops at 63, converters of media models exceed that
MAX_DIMS = 4
MAX_HEAD = 1 << 30  # bytes of metadata; large vocabularies take 20 MB
_MIN_FIELD = 8 + 1 + 4 + 1  # key of one byte, type, value of one byte
_MIN_TENSOR = 8 + 1 + 4 + 4 + 8  # name of one byte, number of dimensions, type, offset


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: shape in NumPy order (slowest axis first: [rows, columns]), place and size in bytes."""

    name: str
    type: GGMLType
    shape: tuple[int, ...]
    offset: int  # from the beginning of its file
    nbytes: int
    file: int = 0  # which part of a split file, from 0

    @property
    def rows(self) -> int:
        """Product of all axes but the last."""
        return prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, along the last axis."""
        return self.nbytes // self.rows


@dataclass(frozen=True, slots=True)
class Header:
    """What one file says of itself."""

    version: int
    alignment: int
    metadata: Metadata
    tensors: list[TensorInfo]
    data_offset: int


def read_header(data: mmap | bytes, path: str, part: int = 0) -> Header:
    """Reads and checks a whole head; `part` goes into the tensor infos. GGUFError with offset and reason."""
    cursor = Cursor(data, path)
    version = _version(cursor)
    n_tensors = _count(cursor, "tensors", _MIN_TENSOR)
    n_fields = _count(cursor, "metadata keys", _MIN_FIELD)
    fields: dict[str, Field] = {}
    for _ in range(n_fields):
        at = cursor.at
        key = cursor.name("metadata key", MAX_KEY)
        if key in fields:
            raise cursor.error(f"the metadata key {key!r} occurs twice", at)
        fields[key] = _field(cursor, key)
    if cursor.at > MAX_HEAD:
        raise cursor.error(f"{cursor.at} bytes of metadata; at most {MAX_HEAD} are read")
    # A copy, since a file that is cut later must not take a process with it that reads its mapped pages.
    metadata = Metadata(bytes(data[: cursor.at]), fields, path)
    alignment = _alignment(metadata, path)
    loose = [_tensor(cursor, part) for _ in range(n_tensors)]
    base = -(-cursor.at // alignment) * alignment
    tensors = [_placed(cursor, info, at, base, alignment) for info, at in loose]
    _check_overlaps(tensors, path)
    return Header(version, alignment, metadata, tensors, base)


def _version(cursor: Cursor) -> int:
    magic = bytes(cursor.data[:4])
    if magic != MAGIC:
        hint = " (a byte-swapped file)" if magic == MAGIC[::-1] else ""
        raise cursor.error(f"not a GGUF file: it begins with {magic!r}, not {MAGIC!r}{hint}")
    cursor.skip(4, "magic")
    at = cursor.at
    version = cursor.u32("version")
    if version in VERSIONS:
        return version
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in VERSIONS:
        raise cursor.error("a big-endian file; convert it with `gguf-convert-endian FILE little` (package gguf)", at)
    raise cursor.error(f"GGUF version {version}; this reader knows {VERSIONS[0]} and {VERSIONS[1]}", at)


def _count(cursor: Cursor, what: str, least: int) -> int:
    at = cursor.at
    count = cursor.u64(f"number of {what}")
    if count > (cursor.end - cursor.at) // least:
        raise cursor.error(f"the file claims {count} {what}, more than its {cursor.end} bytes could hold (truncated?)", at)
    return count


def _value_type(cursor: Cursor, key: str) -> ValueType:
    at = cursor.at
    number = cursor.u32(f"type of {key!r}")
    try:
        return ValueType(number)
    except ValueError:
        raise cursor.error(f"{key!r} has the unknown value type {number}", at) from None


def _field(cursor: Cursor, key: str) -> Field:
    kind = _value_type(cursor, key)
    count = None
    if kind is ValueType.ARRAY:
        at = cursor.at
        kind = _value_type(cursor, key)
        if kind is ValueType.ARRAY:
            raise cursor.error(f"{key!r} is an array of arrays, which no known model uses; refused", at)
        count = cursor.u64(f"length of {key!r}")
    field = Field(kind, count, cursor.at)
    if kind is ValueType.STRING:
        cursor.skip_strings(1 if count is None else count, f"{key!r}")
    else:
        cursor.skip(DTYPES[kind].itemsize * (1 if count is None else count), f"{key!r}")
    return field


def _alignment(metadata: Metadata, path: str) -> int:
    alignment = metadata.int("general.alignment", DEFAULT_ALIGNMENT)
    if alignment <= 0 or alignment & (alignment - 1):
        offset = metadata.field("general.alignment").offset
        raise GGUFError(f"general.alignment is {alignment}; expected a power of two", path=path, offset=offset)
    return alignment


def _tensor(cursor: Cursor, part: int) -> tuple[TensorInfo, int]:
    """A tensor info with its offset still relative to the data, and where in the file it stands."""
    start = cursor.at
    name = cursor.name("tensor name", MAX_NAME)
    at = cursor.at
    n_dims = cursor.u32(f"number of dimensions of {name!r}")
    if n_dims > MAX_DIMS:
        raise cursor.error(f"{name!r} has {n_dims} dimensions; at most {MAX_DIMS} are allowed", at)
    at = cursor.at
    # The file counts the fastest axis first; a tensor without axes is one number.
    shape = tuple(cursor.u64(f"shape of {name!r}") for _ in range(n_dims))[::-1] or (1,)
    if 0 in shape or prod(shape) >= 1 << 63:
        raise cursor.error(f"{name!r} has the impossible shape {list(shape)}", at)
    at = cursor.at
    number = cursor.u32(f"type of {name!r}")
    kind = TYPE_BY_ID.get(number)
    if kind is None:
        raise cursor.error(f"{name!r} has the unknown or removed tensor type {number}", at)
    try:
        row_bytes = kind.row_bytes(shape[-1])
    except ValueError as error:
        raise cursor.error(f"{name!r}: {error}", at) from None
    offset = cursor.u64(f"offset of {name!r}")
    return TensorInfo(name, kind, shape, offset, row_bytes * prod(shape[:-1]), part), start


def _placed(cursor: Cursor, info: TensorInfo, at: int, base: int, alignment: int) -> TensorInfo:
    if info.offset % alignment:
        raise cursor.error(f"{info.name!r} lies at data offset {info.offset}, no multiple of {alignment}", at)
    start = base + info.offset
    end = start + info.nbytes
    if end > cursor.end:
        message = f"{info.name!r} spans bytes {start} to {end}, but the file ends at {cursor.end} (truncated?)"
        raise cursor.error(message, at)
    return TensorInfo(info.name, info.type, info.shape, start, info.nbytes, info.file)


def _check_overlaps(tensors: list[TensorInfo], path: str) -> None:
    for one, two in pairwise(sorted(tensors, key=lambda info: info.offset)):
        if one.offset + one.nbytes > two.offset:
            raise GGUFError(f"the tensors {one.name!r} and {two.name!r} overlap", path=path, offset=two.offset)
