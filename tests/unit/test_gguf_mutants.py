"""Sound files, cut short or with bytes changed: they open or raise GGUFError, and nothing else ever happens."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gguf_bytes import ARR, BOOL, F32, STR, U64, field, gguf, tensor, text, u16, u32
from tensormill.errors import GGUFError
from tensormill.gguf import GGUFFile
from tensormill.gguf.header import read_header

SEED = gguf(
    (
        u32("general.alignment", 32),
        u16("split.count", 0),
        field("s", STR, text("words")),
        field("b", BOOL, b"\1"),
        field("f", F32, struct.pack("<f", 1.5)),
        field("l", ARR, struct.pack("<IQ", STR, 3) + text("a") + text("") + text("ccc")),
        field("n", ARR, struct.pack("<IQ3Q", U64, 3, 1, 2, 3)),
        field("e", ARR, struct.pack("<IQ", STR, 0)),
    ),
    (tensor("t0", [4, 2]), tensor("t1", [32, 3], 8, 32), tensor("t2", [256], 12, 160)),
    bytes(range(256)) + bytes(64),
)


def read_all(path: Path) -> None:
    """Everything that a reader does with a file."""
    with GGUFFile(path) as file:
        for key in file.metadata:
            assert file.metadata[key] is not None
        for name, info in file.tensors.items():
            assert file.data(name).nbytes == info.nbytes
            int(np.add.reduce(file.data(name), axis=None))
            file.release(name)


def read_or_refuse(path: Path) -> None:
    with contextlib.suppress(GGUFError):
        read_all(path)


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "x.gguf"


def test_the_seed_is_sound(path):
    path.write_bytes(SEED)
    read_all(path)


def test_every_truncation_is_refused():
    """The last tensor needs the file up to byte 304 of the data; 16 bytes of padding follow."""
    for size in range(len(SEED) - 16):
        with pytest.raises(GGUFError):
            read_header(SEED[:size], "x")


def test_every_byte_of_the_head():
    """Each byte of the head set to values that make lengths, counts and types extreme."""
    head = len(SEED) - 320
    for at in range(head):
        for value in (0, 1, 0x7F, 0xFF, SEED[at] ^ 1):
            with contextlib.suppress(GGUFError):
                header = read_header(SEED[:at] + bytes([value]) + SEED[at + 1 :], "x")
                assert len(dict(header.metadata)) == 8
                assert all(info.offset + info.nbytes <= len(SEED) for info in header.tensors)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    edits=st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.binary(min_size=1, max_size=9)), max_size=6),
    cut=st.one_of(st.none(), st.integers(0, len(SEED))),
    insert=st.tuples(st.integers(0, len(SEED)), st.binary(max_size=12)),
)
@example(edits=[(4, b"\2")], cut=None, insert=(0, b""))
def test_edits(path, edits, cut, insert):
    raw = bytearray(SEED)
    for at, new in edits:
        raw[at : at + len(new)] = new
    raw[insert[0] : insert[0]] = insert[1]
    path.write_bytes(raw[:cut])
    read_or_refuse(path)
