"""Coverage-guided fuzzing of the GGUF reader with atheris: any bytes open or raise GGUFError.

Not part of the test run. In an environment with the package:
    pip install atheris && python tests/fuzz/gguf_atheris.py -max_total_time=300 -max_len=4096 [corpus folder]
A crash leaves its input in a file crash-*; add it to tests/unit/test_gguf_read.py as a case.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import tracemalloc
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

with atheris.instrument_imports(include=["tensormill"]):
    from tensormill.errors import GGUFError
    from tensormill.gguf import GGUFFile
    from tensormill.gguf.header import read_header

from test_gguf_mutants import SEED

FOLDER = tempfile.TemporaryDirectory()
SPLIT = [Path(FOLDER.name) / f"x-0000{i}-of-00002.gguf" for i in (1, 2)]


def read(raw: bytes) -> None:
    """Head, every value, and a bound on memory: 64 bytes a byte, and 1 MiB for Python itself."""
    tracemalloc.reset_peak()
    with contextlib.suppress(GGUFError):
        header = read_header(raw, "fuzz")
        for key in header.metadata:
            _ = header.metadata[key]
        for info in header.tensors:
            if info.offset + info.nbytes > len(raw):
                raise AssertionError(f"{info} reaches past the end")
    if tracemalloc.get_traced_memory()[1] > (1 << 20) + 64 * len(raw):
        raise MemoryError("more memory than the file justifies")


def open_parts(raw: bytes) -> None:
    """The input as both parts of a split model, from mapped files."""
    for path in SPLIT:
        path.write_bytes(raw)
    with contextlib.suppress(GGUFError), GGUFFile(SPLIT[1]) as file:
        for name in file.tensors:
            file.data(name).sum()


def one_input(raw: bytes) -> None:
    read(raw)
    if hash(raw) % 64 == 0:  # files are slow
        open_parts(raw)


def main() -> None:
    tracemalloc.start()
    folder = Path(tempfile.mkdtemp())
    (folder / "seed").write_bytes(SEED)
    atheris.Setup([*sys.argv, str(folder)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
