"""A real model, if it is there, reads as the gguf package reads it, and survives being written anew in parts."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from tensormill.gguf import GGUFFile, GGUFWriter
from tensormill.quant import decode

MODEL = Path.home() / ".cache/tensormill/test-models/SmolLM2-135M-Instruct.Q4_1.gguf"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not MODEL.exists(), reason=f"needs {MODEL}: run `make models`"),
]


def test_as_the_gguf_package_reads_it():
    reader = gguf.GGUFReader(MODEL)
    with GGUFFile(MODEL) as file:
        fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        assert list(file.metadata) == list(fields)
        for key, field in fields.items():
            assert np.array_equal(file.metadata[key], field.contents()), key
        assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
        for tensor in reader.tensors:
            info = file.tensors[tensor.name]
            assert info.shape == tuple(tensor.shape.tolist())[::-1]
            assert (info.type, info.offset) == (tensor.tensor_type, tensor.data_offset)
        for name in ("blk.0.attn_q.weight", "blk.29.ffn_down.weight", "output_norm.weight"):
            tensor = next(tensor for tensor in reader.tensors if tensor.name == name)
            wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(file.tensors[name].rows, -1)
            assert np.array_equal(decode(file.tensors[name].type, file.data(name)), wanted)


def test_written_anew_in_parts(tmp_path):
    with GGUFFile(MODEL) as file:
        writer = GGUFWriter(tmp_path / "m.gguf", max_part_bytes=40_000_000)
        for key in file.metadata:
            writer.add(key, file.metadata[key], file.metadata.field(key).type)
        for name, info in file.tensors.items():
            writer.add_tensor(name, file.data(name), info.type, info.shape)
        paths = writer.write()
        assert len(paths) == 3
        with GGUFFile(paths[1]) as again:
            for key in file.metadata:
                assert np.array_equal(file.metadata[key], again.metadata[key]), key
                assert again.metadata.field(key).type == file.metadata.field(key).type
            for name, info in file.tensors.items():
                assert again.tensors[name].shape == info.shape
                assert np.array_equal(again.data(name), file.data(name))
