"""Builds the opponent: llama.cpp as its makers would want it measured, natively for this CPU.

The source is the sdist of llama-cpp-python; the compiler is Debian's clang-19 where apt is at hand (gcc 12 drops the
stores that fill the AMX tile configuration, so its AMX build dies of an illegal instruction), else any clang. One
build for each (version, compiler, CPU features) is kept under ~/.cache/tensormill: none is used on another CPU.

    python benchmarks/llama_cpp_build.py [--jobs N]         prints the folder of its programs
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from machine import cpu_features

VERSION = "0.3.36"  # of llama-cpp-python; llama.cpp commit 0c1e57098, October 2026
HOME = Path.home() / ".cache" / "tensormill" / "llama.cpp-native"
DEBIAN = ("clang-19", "libomp-19-dev")
TARGETS = ("llama-bench", "llama-batched-bench", "llama-quantize", "llama-server")
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON",
    "GGML_NATIVE": "ON",
    "GGML_CCACHE": "OFF",
    "LLAMA_BUILD_COMMON": "ON",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",  # would be a download at build time
}
NARROW = {  # instruction set → options that take the place of "native"
    "avx2": {"GGML_NATIVE": "OFF"} | dict.fromkeys(("GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C", "GGML_BMI2"), "ON"),
}


@dataclass(frozen=True)
class Baseline:
    """A finished build: its tools, and what it was built from and with."""

    folder: Path
    version: str
    compiler: str
    targets: tuple[str, ...] = TARGETS

    @property
    def bench(self) -> Path:
        """The llama-bench program."""
        return self.folder / "bin" / "llama-bench"

    @property
    def batched_bench(self) -> Path:
        """The llama-batched-bench program."""
        return self.folder / "bin" / "llama-batched-bench"

    @property
    def quantize(self) -> Path:
        """The llama-quantize program."""
        return self.folder / "bin" / "llama-quantize"

    @property
    def server(self) -> Path:
        """The llama-server program."""
        return self.folder / "bin" / "llama-server"

    @property
    def finished(self) -> bool:
        """Whether it is all there; a build of fewer tools, by an earlier version of this file, is not."""
        tools = (self.folder / "bin" / tool for tool in self.targets)
        return (self.folder / "finished.json").exists() and all(t.exists() for t in tools)


def build(jobs: int | None = None, isa: str | None = None) -> Baseline:
    """The build for this machine, made first if it is not there (twenty CPU minutes); SystemExit says what failed.

    `isa`: one of `NARROW`, for which only llama-bench is built.
    """
    cc, cxx = _compilers()
    compiler = _output(cc, "--version").splitlines()[0]
    features = [isa] if isa else cpu_features()
    key = hashlib.sha256(" ".join([VERSION, compiler, *features]).encode()).hexdigest()[:12]
    targets = TARGETS[:1] if isa else TARGETS
    baseline = Baseline(HOME / f"{VERSION}-{key}", VERSION, compiler, targets)
    if baseline.finished:
        return baseline
    source = _source()
    chosen = OPTIONS | NARROW[isa] if isa else OPTIONS
    options = [f"-D{name}={value}" for name, value in chosen.items()]
    options += [f"-DCMAKE_C_COMPILER={cc}", f"-DCMAKE_CXX_COMPILER={cxx}"]
    if _tool("ninja"):
        options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}"]
    cmake = _tool("cmake") or "cmake"
    print(f"building llama.cpp with {compiler}; log: {baseline.folder}.log", file=sys.stderr, flush=True)
    with Path(f"{baseline.folder}.log").open("w") as log:
        _run([cmake, "-S", str(source), "-B", str(baseline.folder), *options], log.name)
        parallel = ["--parallel", str(jobs or os.cpu_count() or 1)]
        _run([cmake, "--build", str(baseline.folder), *parallel, "--target", *targets], log.name)
    about = {"version": VERSION, "compiler": compiler, "features": features, "options": chosen}
    (baseline.folder / "finished.json").write_text(json.dumps(about, indent=2))
    return baseline


def requantised(baseline: Baseline, source: Path, kind: str) -> Path:
    """`source` requantised to `kind` (such as Q8_0), kept beside the builds. Its text is worse, its speed is real."""
    target = HOME / "models" / f"{source.stem}.{kind}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        _run([str(baseline.quantize), "--allow-requantize", str(source), str(partial), kind], f"{target}.log")
        partial.replace(target)
    return target


def _compilers() -> tuple[str, str]:
    """The C and C++ compilers to use; clang-19 is installed when this is root on a Debian that has it."""
    if platform.system() == "Linux" and not shutil.which("clang++-19") and shutil.which("apt-get") and not os.geteuid():
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *DEBIAN], check=False)
    for cc, cxx in (("clang-19", "clang++-19"), ("clang", "clang++"), ("cc", "c++")):
        if shutil.which(cc) and shutil.which(cxx):
            if cc == "cc":
                print(f"no clang found: an AMX build may not run ({' '.join(DEBIAN)} mends it)", file=sys.stderr)
            return cc, cxx
    raise SystemExit(f"no C++ compiler found; on Debian: apt-get install {' '.join(DEBIAN)}")


def _source() -> Path:
    """The llama.cpp tree inside the sdist, downloaded and unpacked once."""
    folder = HOME / "src"
    root = folder / f"llama_cpp_python-{VERSION}"
    tree = root / "vendor" / "llama.cpp"
    if not (root / "PKG-INFO").exists() or not tree.exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / f"{root.name}.tar.gz"
        if not archive.exists():
            # Asking pip for an sdist runs its build backend for the metadata: ours is installed already.
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
            command += ["--no-binary", ":all:", "--dest", str(folder), f"llama-cpp-python=={VERSION}"]
            subprocess.run(command, check=True)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return tree


def _tool(name: str) -> str | None:
    """A build tool: from this Python's environment, else from PATH."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _run(command: list[str], log: str) -> None:
    with Path(log).open("a") as out:
        if subprocess.run(command, check=False, stdout=out, stderr=subprocess.STDOUT).returncode:
            tail = "\n".join(Path(log).read_text(errors="replace").splitlines()[-15:])
            raise SystemExit(f"{' '.join(command[:3])} … failed; the end of {log}:\n{tail}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, help="parallel compilers (default: one a core)")
    parser.add_argument("--isa", choices=NARROW, help="a smaller instruction set than this machine's")
    given = parser.parse_args()
    print(build(given.jobs, given.isa).folder / "bin")
