"""Models in parts: any part opens all; parts that do not belong together are refused."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gguf_bytes import gguf, tensor, u16, u32
from tensormill.errors import GGUFError
from tensormill.gguf import GGUFFile, GGUFWriter


@pytest.fixture
def parts(tmp_path):
    writer = GGUFWriter(tmp_path / "m.gguf", max_part_bytes=1500)
    writer.add("general.architecture", "test")
    for i in range(5):
        writer.add_tensor(f"t{i}", np.full((16, 8), i, np.float32))
    paths = writer.write()
    assert [path.name for path in paths] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert max(path.stat().st_size for path in paths) <= 1500
    return paths


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_any_part_opens_all(parts, opened):
    with GGUFFile(parts[opened]) as file:
        assert file.path == parts[0]
        assert file.paths == parts
        assert file.sizes == [path.stat().st_size for path in parts]
        assert file.metadata.str("general.architecture") == "test"
        assert [info.file for info in file.tensors.values()] == [0, 0, 1, 1, 2]
        for i, name in enumerate(file.tensors):
            assert (file.data(name).view("<f4") == i).all()


def test_the_gguf_package_reads_the_parts(parts):
    from gguf import GGUFReader

    names = [tensor.name for path in parts for tensor in GGUFReader(path).tensors]
    assert names == [f"t{i}" for i in range(5)]


@pytest.mark.parametrize("opened", [0, 2])
def test_missing_part(parts, opened):
    parts[1].unlink()
    with pytest.raises(GGUFError, match=r"missing: m-00002-of-00003\.gguf"):
        GGUFFile(parts[opened])


@pytest.mark.parametrize("source", [0, 2])
def test_a_copy_of_another_part(parts, source):
    shutil.copy(parts[source], parts[1])
    with pytest.raises(GGUFError, match=r"expected split.no, split.count = \(1, 3\)|must be named"):
        GGUFFile(parts[0])


def test_a_link_back_to_the_first_part(parts):
    parts[2].unlink()
    parts[2].symlink_to(parts[0])
    with pytest.raises(GGUFError, match=r"found \(0, 3\)"):
        GGUFFile(parts[0])
    with pytest.raises(GGUFError, match="must be named NAME-00001-of-00003"):
        GGUFFile(parts[2])


def test_a_renamed_part(parts):
    parts[0].rename(parts[0].with_name("model.gguf"))
    with pytest.raises(GGUFError, match=r"must be named NAME-00001-of-00003\.gguf"):
        GGUFFile(parts[0].with_name("model.gguf"))


def test_a_broken_later_part_names_itself(parts):
    parts[1].write_bytes(parts[1].read_bytes()[:-300])
    with pytest.raises(GGUFError, match=r"m-00002-of-00003.gguf: at byte \d+: .*truncated"):
        GGUFFile(parts[0])


def raw_part(number: int, names: tuple[str, ...], *extra: bytes) -> bytes:
    infos = tuple(tensor(name, [4], 0, 32 * i) for i, name in enumerate(names))
    return gguf((u16("split.no", number), u16("split.count", 2), *extra), infos, bytes(32 * len(names)))


def test_totals_and_duplicates_across_parts(tmp_path):
    first, second = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    first.write_bytes(raw_part(0, ("a", "b"), u32("split.tensors.count", 4)))
    second.write_bytes(raw_part(1, ("c",)))
    with pytest.raises(GGUFError, match=r"split\.tensors\.count is 4, but the parts hold 3"):
        GGUFFile(first)
    second.write_bytes(raw_part(1, ("c", "a")))
    with pytest.raises(GGUFError, match="'a' occurs twice"):
        GGUFFile(second)
    second.write_bytes(gguf())
    with pytest.raises(GGUFError, match=r"found \(None, None\)"):
        GGUFFile(first)
