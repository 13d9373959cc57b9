"""Opens a GGUF model, whole or split in parts, maps it into memory and hands out views of its tensors.

Nothing is copied and nothing decoded: what the bytes mean is in `tensormill.quant`. Parsing is in `header`.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from tensormill.errors import GGUFError
from tensormill.gguf.header import Header, TensorInfo, read_header
from tensormill.gguf.metadata import Metadata

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class GGUFFile:
    """A model file; any part of a split one opens all. Use as a context manager or call `close`.

    Attributes: `path` (first part), `version`, `alignment`, `metadata` (of the first part), `tensors` by name in file
    order, `paths` and `sizes` (bytes) of the parts. Raises GGUFError with offset and reason for any file it refuses.
    """

    def __init__(self, path: str | Path) -> None:
        self._maps: list[mmap.mmap] = []
        self.paths: list[Path] = []
        try:
            self._open(Path(path))
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path) -> None:
        first = self._add(path)
        count = first.metadata.int("split.count", 0)
        headers = [first]
        if count > 1:
            names = _part_paths(path, first.metadata, count)
            if names[0] != path:
                self.close()
                self.paths.clear()
                headers = [self._add(names[0])]
            headers += [self._add(name) for name in names[1:]]
            for number, header in enumerate(headers):
                _check_part(header.metadata, number, count, self.paths[number])
        self.path = self.paths[0]
        self.version, self.alignment, self.metadata = headers[0].version, headers[0].alignment, headers[0].metadata
        self.sizes = [len(data) for data in self._maps]
        self.tensors: dict[str, TensorInfo] = {}
        for header in headers:
            self._join(header)
        total = self.metadata.int("split.tensors.count", None) if count > 1 else None
        if total is not None and total != len(self.tensors):
            raise GGUFError(f"split.tensors.count is {total}, but the parts hold {len(self.tensors)}", path=str(self.path))

    def _add(self, path: Path) -> Header:
        data = _map(path)
        self._maps.append(data)
        self.paths.append(path)
        header = read_header(data, str(path), len(self._maps) - 1)
        self._give_back(data, 0, header.data_offset)  # what it says was copied
        return header

    def _join(self, header: Header) -> None:
        for info in header.tensors:
            if info.name in self.tensors:
                path = self.paths[info.file]
                raise GGUFError(f"the tensor {info.name!r} occurs twice", path=str(path), offset=info.offset)
            self.tensors[info.name] = info

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's bytes, read-only, [product of the leading axes, row_bytes], as a view of the mapped file."""
        info = self._info(name)
        view = np.frombuffer(self._maps[info.file], np.uint8, info.nbytes, info.offset)
        return view.reshape(info.rows, info.row_bytes)

    def release(self, name: str) -> None:
        """Lets the system take back the tensor's pages (once packed elsewhere); reading it again reads the file."""
        info = self._info(name)
        self._give_back(self._maps[info.file], info.offset, info.offset + info.nbytes)

    def give_back(self) -> None:
        """Lets the system take back all pages of all parts, as `release` does those of a tensor."""
        for data in self._maps:
            self._give_back(data, 0, len(data))

    @staticmethod
    def _give_back(data: mmap.mmap, start: int, end: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            # Neighbours on the border pages lose nothing either: the mapping is of a file and never written.
            start = start // mmap.PAGESIZE * mmap.PAGESIZE
            data.madvise(mmap.MADV_DONTNEED, start, min(end, len(data)) - start)

    def _info(self, name: str) -> TensorInfo:
        if not self._maps:
            raise GGUFError("the file is closed", path=str(self.path))
        if name not in self.tensors:
            raise GGUFError(f"there is no tensor {name!r}", path=str(self.path))
        return self.tensors[name]

    def close(self) -> None:
        """Unmaps the parts; where views of tensors are still alive, the last of them does it."""
        for data in self._maps:
            with contextlib.suppress(BufferError):
                data.close()
        self._maps.clear()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise GGUFError(f"cannot open the file: {error.strerror or error}", path=str(path)) from None
    except ValueError:
        raise GGUFError("the file is empty", path=str(path), offset=0) from None


def _part_paths(path: Path, metadata: Metadata, count: int) -> list[Path]:
    """Paths of all parts, from the name of one of them."""
    found = _PART_NAME.fullmatch(path.name)
    number = metadata.int("split.no", 0)
    if found is None or int(found["count"]) != count or int(found["number"]) != number + 1:
        expected = f"NAME-{number + 1:05}-of-{count:05}.gguf"
        raise GGUFError(f"part {number + 1} of {count} of a split model must be named {expected}", path=str(path))
    paths = [path.with_name(f"{found['stem']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    for other in paths:
        if not other.exists():
            raise GGUFError(f"a part of the split model is missing: {other.name}", path=str(path))
    return paths


def _check_part(metadata: Metadata, number: int, count: int, path: Path) -> None:
    """A copy or link under another part's name says another number; this also ends any cycle."""
    found = metadata.int("split.no", None), metadata.int("split.count", None)
    if found != (number, count):
        raise GGUFError(f"expected split.no, split.count = {(number, count)}, found {found}", path=str(path))
