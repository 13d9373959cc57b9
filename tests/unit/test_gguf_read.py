"""Reading GGUF: what a sound file gives, and how each kind of broken or hostile file is refused."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gguf_bytes import ARR, BOOL, F32, STR, U32, U64, field, gguf, tensor, text, u32
from tensormill.errors import GGUFError
from tensormill.gguf import GGMLType, GGUFFile, GGUFWriter


def saved(path: Path, raw: bytes) -> Path:
    path = path / "x.gguf"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_reads_values_and_tensors(tmp_path, version):
    fields = (
        field("a.text", STR, text("grüße 🙂")),
        u32("a.number", 7),
        field("a.flag", BOOL, b"\1"),
        field("a.real", F32, struct.pack("<f", 0.5)),
        field("a.words", ARR, struct.pack("<IQ", STR, 3) + text("x") + text("") + text(b"\xff\xfe")),
        field("a.numbers", ARR, struct.pack("<IQ3i", 5, 3, -1, 2, 3)),
        field("a.flags", ARR, struct.pack("<IQ3B", BOOL, 3, 0, 1, 2)),
    )
    infos = (tensor("w", [4, 3]), tensor("b", [2], 1, 64), tensor("n", [], 24, 96))
    data = np.arange(12, dtype="<f4").tobytes().ljust(64, b"\0") + np.array([1, 2], "<f2").tobytes().ljust(32) + b"\5"
    with GGUFFile(saved(tmp_path, gguf(fields, infos, data, version=version))) as file:
        assert dict(file.metadata) | {"a.numbers": 0, "a.flags": 0} == {
            "a.text": "grüße 🙂", "a.number": 7, "a.flag": True, "a.real": 0.5,
            "a.words": ["x", "", r"\xff\xfe"], "a.numbers": 0, "a.flags": 0,
        }  # fmt: skip
        assert file.metadata.array("a.numbers").tolist() == [-1, 2, 3]
        assert file.metadata.array("a.flags").tolist() == [False, True, True]
        assert [(info.name, info.type, info.shape) for info in file.tensors.values()] == [
            ("w", GGMLType.F32, (3, 4)), ("b", GGMLType.F16, (2,)), ("n", GGMLType.I8, (1,)),
        ]  # fmt: skip
        w = file.data("w")
        assert w.shape == (3, 16)
        assert not w.flags.writeable
        assert w.view("<f4").tolist() == np.arange(12).reshape(3, 4).tolist()
        assert file.data("n").tolist() == [[5]]
        file.release("w")
        assert w.view("<f4")[2, 3] == 11


def test_expert_tensors_have_rows_of_all_leading_axes(tmp_path):
    data = bytes(range(18)) * 12
    with GGUFFile(saved(tmp_path, gguf((), (tensor("e", [64, 3, 2], 2),), data))) as file:
        assert file.tensors["e"].shape == (2, 3, 64)
        assert file.data("e").shape == (6, 36)


def test_typed_getters(tmp_path):
    fields = (u32("n", 3), field("s", STR, text("x")), field("f", BOOL, b"\1"), u32("m", 2))
    with GGUFFile(saved(tmp_path, gguf(fields))) as file:
        m = file.metadata
        assert (m.int("n"), m.float("n"), m.bool("f"), m.str("s")) == (3, 3.0, True, "x")
        assert isinstance(m.float("n"), float)
        assert (m.int("none", 5), m.str("none", None), m.get("none")) == (5, None, None)
        assert m.float("none", None) is None
        assert str(m.field("n")) == "uint32"
        for get, key in ((m.int, "s"), (m.int, "f"), (m.float, "f"), (m.bool, "n"), (m.str, "n"), (m.array, "n")):
            with pytest.raises(GGUFError, match=f"'{key}' is .*; expected"):
                get(key)
        for get in (m.int, m.float, m.bool, m.str, m.strings, m.array):
            with pytest.raises(GGUFError, match="'absent' is missing"):
                get("absent")


def test_values_and_views_outlive_close(tmp_path):
    path = saved(tmp_path, gguf((u32("n", 3), field("s", STR, text("x"))), (tensor("w", [4]),), bytes(range(16))))
    file = GGUFFile(path)
    view = file.data("w")
    assert file.metadata["n"] == 3
    file.close()
    assert view[0, 15] == 15
    assert file.metadata["n"] == 3
    with pytest.raises(GGUFError, match="closed"):
        file.data("w")
    assert file.metadata["s"] == "x"


def test_alignment_key(tmp_path):
    fields = (u32("general.alignment", 256),)
    infos = (tensor("a", [1]), tensor("b", [1], 0, 256))
    data = struct.pack("<f", 1).ljust(256) + struct.pack("<f", 2)
    with GGUFFile(saved(tmp_path, gguf(fields, infos, data, alignment=256))) as file:
        assert file.alignment == 256
        assert file.data("b").view("<f4")[0, 0] == 2


one = tensor("w", [4])
HOSTILE = {
    "is empty": b"",
    "begins with b'GG'": b"GG",
    "not a GGUF file": b"PK\3\4" + bytes(60),
    "byte-swapped": b"FUGG" + bytes(60),
    "version 1;": gguf(version=1),
    "version 4;": gguf(version=4),
    "big-endian file; convert": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "number of metadata keys needs 8 bytes": gguf(alignment=1)[:-1],
    "claims 18446744073709551615 tensors": gguf(n_tensors=2**64 - 1),
    "claims 1000000 metadata keys": gguf(n_fields=10**6, data=bytes(1000)),
    "metadata key of 0 bytes": gguf((u32("", 1),)),
    "metadata key of 4294967296 bytes": gguf((struct.pack("<Q", 1 << 32) + bytes(40),)),
    "metadata key is not UTF-8": gguf((field(b"\xff\xff", U32, bytes(4)),)),
    "key 'a' occurs twice": gguf((u32("a", 1), u32("a", 1))),
    "unknown value type 13": gguf((field("a", 13, bytes(40)),)),
    "array of arrays": gguf((field("a", ARR, struct.pack("<IQ", ARR, 1) + bytes(20)),)),
    "'a' needs 36893488147419103228": gguf((field("a", ARR, struct.pack("<IQ", U32, (1 << 63) - 1) + bytes(4)),)),
    "claims 1099511627776 strings": gguf((field("a", ARR, struct.pack("<IQ", STR, 1 << 40) + bytes(99)),)),
    "'a' has a string that runs past": gguf((field("a", STR, struct.pack("<Q", 1 << 63)),)),
    "'b' has a string that runs past": gguf((field("b", ARR, struct.pack("<IQQ", STR, 1, (1 << 64) - 1)),)),
    "alignment is 24; expected a power": gguf((u32("general.alignment", 24),)),
    "alignment is 0; expected a power": gguf((u32("general.alignment", 0),)),
    "'general.alignment' is string": gguf((field("general.alignment", STR, text("32")),)),
    "tensor name of 0 bytes": gguf((), (tensor("", [4]),), bytes(64)),
    "tensor name of 2000 bytes": gguf((), (tensor("x" * 2000, [4]),), bytes(64)),
    "tensor name is not UTF-8": gguf((), (tensor(b"\xc3\x28", [4]),), bytes(64)),
    "has 5 dimensions": gguf((), (tensor("w", [1] * 5),), bytes(64)),
    "has 4294967295 dimensions": gguf((), (text("w") + b"\xff" * 4 + bytes(40),), bytes(64)),
    "impossible shape [2, 0]": gguf((), (tensor("w", [0, 2]),), bytes(64)),
    "impossible shape [4294967296, 4294967296, 4]": gguf((), (tensor("w", [4, 1 << 32, 1 << 32]),), bytes(64)),
    "impossible shape [9223372036854775809, 2]": gguf((), (tensor("w", [2, (1 << 63) + 1]),), bytes(64)),
    "removed tensor type 4": gguf((), (tensor("w", [32], 4),), bytes(64)),
    "removed tensor type 4294967295": gguf((), (tensor("w", [32], 2**32 - 1),), bytes(64)),
    "multiple of 256 elements, not 128": gguf((), (tensor("w", [128, 2], 12),), bytes(999)),
    "no multiple of 32": gguf((), (tensor("w", [4], 0, 8),), bytes(64)),
    "spans bytes 64 to 80, but the file ends at 79": gguf((), (tensor("w", [4]),), bytes(15)),
    "spans bytes 18446744073709551": gguf((), (tensor("w", [4], 0, (1 << 64) - 32),), bytes(64)),
    "overlap": gguf((), (tensor("v", [12]), tensor("w", [4], 0, 32)), bytes(64)),
    "'w' and 'v' overlap": gguf((), (tensor("w", [4]), tensor("v", [4])), bytes(64)),
    "tensor 'w' occurs twice": gguf((), (one, tensor("w", [4], 0, 32)), bytes(64)),
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_refuses(tmp_path, reason):
    path = saved(tmp_path, HOSTILE[reason])
    with pytest.raises(GGUFError, match=re.escape(reason)) as caught:
        GGUFFile(path)
    assert str(path) in str(caught.value)
    assert caught.value.offset is not None


def test_refuses_what_is_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none.gguf"):
        with pytest.raises(GGUFError, match="cannot open"):
            GGUFFile(path)


def test_long_names_of_media_models_are_read(tmp_path):
    name = "v.blk.0." + "n" * 100
    with GGUFFile(saved(tmp_path, gguf((), (tensor(name, [4]),), bytes(16)))) as file:
        assert list(file.tensors) == [name]


def test_memory_is_bounded_by_the_file(tmp_path):
    """A file of claims: many counts and lengths, all huge. Refused at the first without allocating for it."""
    import tracemalloc

    claims = struct.pack("<IQ", U64, 1 << 60)
    path = saved(tmp_path, gguf(tuple(field(f"k{i}", ARR, claims) for i in range(1000))))
    tracemalloc.start()
    with pytest.raises(GGUFError):
        GGUFFile(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_large_vocabulary_opens_fast(tmp_path):
    words = [f"token{i}" for i in range(150_000)]
    writer = GGUFWriter(tmp_path / "v.gguf")
    writer.add("tokenizer.ggml.tokens", words)
    writer.add("tokenizer.ggml.merges", [f"{a} {a}" for a in words])
    writer.add("tokenizer.ggml.token_type", np.ones(150_000, np.int32))
    writer.write()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        with GGUFFile(tmp_path / "v.gguf") as file:
            times.append(time.perf_counter() - start)
            assert len(file.metadata) == 3
    assert min(times) < 0.3
    with GGUFFile(tmp_path / "v.gguf") as file:
        assert file.metadata.strings("tokenizer.ggml.tokens") == words


def test_what_a_file_says_is_known_after_it_was_cut(tmp_path):
    path = saved(tmp_path, gguf((field("words", ARR, struct.pack("<IQ", STR, 3) + text("one") * 3),)))
    script = (
        "import os, sys; from tensormill.gguf import GGUFFile; file = GGUFFile(sys.argv[1]); os.truncate(sys.argv[1], 0); "
        "print(file.metadata.strings('words'))"
    )  # in a process of its own: reading mapped pages that are no more would end it
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == "['one', 'one', 'one']\n", (done.returncode, done.stderr)
