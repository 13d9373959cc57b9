"""The kernels compiled for aarch64 (NEON) pass their tests under qemu-user, and whole models get the bits of AVX2.

`make neon` makes what this needs: a cross compiler, qemu-user, an aarch64 Python, and the module.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ops.test_cpu_isa import ROOT, SCRIPT, run

BUILD = ROOT / "build" / "neon"
PYTHON = BUILD / "python"
TESTS = ("test_linear.py", "test_cpu_ops.py", "test_cpu_attention.py", "test_kv_types.py")
ALONE = "not instruction_sets_agree"  # qemu-user starts no second program


def missing() -> str:
    """What these tests lack; empty if nothing."""
    modules = list((ROOT / "src/tensormill/backends/cpu").glob("_native.*aarch64*.so"))
    if not modules or not PYTHON.exists():
        return "needs `make neon`: an aarch64 cross compiler, qemu-user and an aarch64 Python"
    sources = max(path.stat().st_mtime for path in (ROOT / "csrc").rglob("*.*"))
    return "csrc has changed since `make neon`" if sources > modules[0].stat().st_mtime else ""


pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def emulated(*words: str) -> subprocess.CompletedProcess[str]:
    """The aarch64 Python with these arguments, on this checkout."""
    paths = (ROOT / "src", ROOT / "tests", BUILD / "site")
    env = os.environ | {"PYTHONPATH": ":".join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([str(PYTHON), *words], env=env, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_kernels(name: str) -> None:
    done = emulated("-m", "pytest", "-x", "-p", "no:cacheprovider", f"tests/ops/{name}", "-k", ALONE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_models_get_the_bits_of_avx2(tmp_path: Path) -> None:
    done = emulated("-c", SCRIPT, str(tmp_path / "neon.npz"))
    assert done.returncode == 0, done.stderr
    expected = run("avx2", tmp_path / "avx2.npz", SCRIPT)
    with np.load(tmp_path / "neon.npz") as saved:
        for name, logits in expected.items():
            np.testing.assert_array_equal(logits.view(np.int32), saved[name].view(np.int32), err_msg=name)
