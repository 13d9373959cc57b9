"""GGUF files laid down byte by byte, so that tests can write what no proper writer would."""

from __future__ import annotations

import struct

U8, U32, F32, BOOL, STR, ARR, U64 = 0, 4, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def field(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def u32(key: str, value: int) -> bytes:
    return field(key, U32, struct.pack("<I", value))


def u16(key: str, value: int) -> bytes:
    return field(key, 2, struct.pack("<H", value))


def tensor(name: str | bytes, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    """Dimensions in file order, fastest first."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(
    fields: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_tensors: int | None = None,
    n_fields: int | None = None,
    alignment: int = 32,
) -> bytes:
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_fields = len(fields) if n_fields is None else n_fields
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_fields) + b"".join(fields) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data
