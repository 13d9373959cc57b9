"""What GGUFWriter writes, GGUFFile and the gguf package read back the same, whole and in parts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType

DTYPES = ["i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8", "?"]
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
arrays = st.builds(
    lambda dtype, raw: np.frombuffer(raw[: len(raw) // 8 * 8], "?" if dtype == "?" else dtype).copy(),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 1), max_size=48).map(bytes),
)
values = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(width=32, allow_nan=False),
    st.lists(st.text(max_size=5, alphabet=st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=5),
    arrays,
)
kinds = st.sampled_from([GGMLType.F32, GGMLType.F16, GGMLType.I8, GGMLType.I64, GGMLType.Q8_0, GGMLType.Q4_K])
tensors = st.tuples(kinds, st.lists(st.integers(1, 3), min_size=1, max_size=4))
PLAIN = {GGMLType.F32: "<f4", GGMLType.F16: "<f2", GGMLType.I8: "i1", GGMLType.I64: "<i8"}


def array(kind: GGMLType, shape: list[int], seed: int) -> np.ndarray:
    rows = (*shape[:-1], shape[-1] * kind.block_bytes)
    raw = np.random.default_rng(seed).integers(0, 256, rows, np.uint8)
    return raw.view(PLAIN[kind]) if kind in PLAIN else raw


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    fields=st.dictionaries(names, values, max_size=6),
    specs=st.dictionaries(names, tensors, max_size=6),
    version=st.sampled_from([2, 3]),
    alignment=st.sampled_from([1, 8, 32, 4096]),
    most=st.sampled_from([None, 1, 3000]),
)
def test_round_trip(fields, specs, version, alignment, most):
    fields = {key: value for key, value in fields.items() if not key.startswith(("split.", "general.alignment"))}
    data = {name: array(*spec, seed) for seed, (name, spec) in enumerate(specs.items())}
    with tempfile.TemporaryDirectory() as folder:
        writer = GGUFWriter(Path(folder) / "x.gguf", version, alignment, most)
        for key, value in fields.items():
            writer.add(key, value)
        for name, rows in data.items():
            writer.add_tensor(name, rows, specs[name][0])
        paths = writer.write()
        assert sorted(Path(folder).iterdir()) == paths
        assert len(paths) == 1 or most is not None
        with GGUFFile(paths[-1]) as file:
            assert (file.version, file.alignment) == (version, alignment)
            assert list(file.tensors) == list(data)
            for key, value in fields.items():
                found = file.metadata[key]
                assert np.array_equal(found, value), key
                assert type(found) is type(value) or isinstance(value, list)
                assert not isinstance(value, np.ndarray) or found.dtype == value.dtype
            for name, (kind, shape) in specs.items():
                info = file.tensors[name]
                assert info.offset % alignment == 0
                assert (info.type, info.shape) == (kind, (*shape[:-1], shape[-1] * kind.block))
                assert file.data(name).tobytes() == data[name].tobytes()


def test_the_gguf_package_reads_it(tmp_path):
    rng = np.random.default_rng(0)
    w, q = rng.standard_normal((2, 3, 64)).astype(np.float32), rng.integers(0, 256, (5, 68), np.uint8)
    writer = GGUFWriter(tmp_path / "x.gguf", alignment=64)
    writer.add("general.architecture", "llama")
    writer.add("a.list", ["x", "yy", ""])
    writer.add("a.numbers", [1, -2])
    writer.add("a.big", 1 << 40)
    writer.add("a.small", 3, ValueType.UINT8)
    writer.add_tensor("w", w)
    writer.add_tensor("q", q, GGMLType.Q8_0)
    writer.write()
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    fields = {name: (field.types, field.contents()) for name, field in reader.fields.items() if name[0] == "a"}
    kind = gguf.GGUFValueType
    assert fields == {
        "a.list": ([kind.ARRAY, kind.STRING], ["x", "yy", ""]),
        "a.numbers": ([kind.ARRAY, kind.INT32], [1, -2]),
        "a.big": ([kind.UINT64], 1 << 40),
        "a.small": ([kind.UINT8], 3),
    }
    assert [(t.name, t.tensor_type.name, list(t.shape)) for t in reader.tensors] == [
        ("w", "F32", [64, 3, 2]), ("q", "Q8_0", [64, 5]),
    ]  # fmt: skip
    assert np.array_equal(reader.tensors[0].data, w)
    assert np.array_equal(reader.tensors[1].data, q)


def test_it_reads_what_the_gguf_package_writes(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_array("a.list", ["x", "yy"])
    writer.add_float32("a.real", 0.25)
    writer.add_tensor("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with GGUFFile(tmp_path / "x.gguf") as file:
        assert dict(file.metadata) == {"general.architecture": "llama", "a.list": ["x", "yy"], "a.real": 0.25}
        assert file.data("w").view("<f4").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_data_made_while_writing(tmp_path):
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add_tensor("w", lambda: np.ones((2, 3), np.float32), GGMLType.F32, (2, 3))
    writer.write()
    with GGUFFile(tmp_path / "x.gguf") as file:
        assert (file.data("w").view("<f4") == 1).all()


def test_overwriting_a_mapped_file_leaves_its_reader_alone(tmp_path):
    for value in (1, 2):
        writer = GGUFWriter(tmp_path / "x.gguf")
        writer.add_tensor("w", np.full(4, value, np.float32))
        writer.write()
        if value == 1:
            file = GGUFFile(tmp_path / "x.gguf")
    assert (file.data("w").view("<f4") == 1).all()
    file.close()


def test_a_failed_write_leaves_nothing(tmp_path):
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add_tensor("w", lambda: np.ones(4, np.float32), GGMLType.F32, (2, 3))
    with pytest.raises(ValueError, match="16 bytes are given for F32 \\[2, 3\\] of 24 bytes"):
        writer.write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([], None), ([1, "x"], None), ([True, 1], None), (None, None), (1 << 64, None), ({}, None),
        (300, ValueType.UINT8),
        ("x", ValueType.UINT32), (1, ValueType.STRING), (np.array([300]), ValueType.INT8), (np.ones((2, 2)), None),
        (np.array([1 + 2j]), None), ([[1], [2]], None),
    ],
)  # fmt: skip
def test_refuses_values(tmp_path, value, kind):
    with pytest.raises(ValueError):
        GGUFWriter(tmp_path / "x.gguf").add("k", value, kind)


def test_refuses_keys_and_tensors(tmp_path):
    writer = GGUFWriter(tmp_path / "x.gguf")
    writer.add("k", 1)
    w = np.ones((2, 32), np.float32)
    writer.add_tensor("w", w)
    for name in ("k", "", "x" * 70000):
        with pytest.raises(ValueError):
            writer.add(name, 1)
    for bad in (
        {"name": "w", "data": w},
        {"name": "", "data": w},
        {"name": "v", "data": w, "type": GGMLType.Q8_0},
        {"name": "v", "data": w.view(np.uint8)},
        {"name": "v", "data": np.ones((2, 33), np.uint8), "type": GGMLType.Q8_0},
        {"name": "v", "data": w, "shape": (2, 31)},
        {"name": "v", "data": np.ones((1, 1, 1, 1, 4), np.float32)},
        {"name": "v", "data": np.ones((0, 4), np.float32)},
        {"name": "v", "data": np.ones(4, np.complex64)},
        {"name": "v", "data": lambda: w},
    ):
        with pytest.raises(ValueError):
            writer.add_tensor(**bad)
    for wrong in ({"version": 1}, {"alignment": 24}, {"alignment": 0}):
        with pytest.raises(ValueError):
            GGUFWriter(tmp_path / "x.gguf", **wrong)
