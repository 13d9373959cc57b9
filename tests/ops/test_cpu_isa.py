"""AVX2 and AVX-512 give the same bits for whole models: a program in a process of its own for each instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
import numpy as np
from ops.test_cpu_steps import MODELS, bits, texts
np.savez(sys.argv[1], **{name: bits(name, texts(name, 1)[0]) for name in MODELS})
"""
KV_SCRIPT = """
import sys
import numpy as np
from ops.test_cpu_attention import paged, width
from ops.test_kv_types import TYPES, one_op
made = {}
for kind in TYPES:
    for shape, page in (((9, 3, 64, 96), 64), ((7, 1, 32, 32), 8)):
        one = one_op(paged(*shape), width(*shape), kind, page=page)
        made[f"{kind} {shape}"] = one.cpu(one.step([57, 1, 12]))
np.savez(sys.argv[1], **made)
"""


def run(isa: str, path: Path, script: str) -> dict[str, np.ndarray]:
    env = os.environ | {"TENSORMILL_ISA": isa, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", script, str(path)], env=env, capture_output=True, text=True, check=False)
    if "which this processor lacks" in done.stderr:
        pytest.skip(f"no {isa} here")
    assert done.returncode == 0, done.stderr
    with np.load(path) as saved:
        return dict(saved)


@pytest.mark.parametrize("script", [SCRIPT, KV_SCRIPT], ids=["models", "kv-types"])
def test_instruction_sets_agree(tmp_path: Path, script: str) -> None:
    narrow, wide = (run(isa, tmp_path / f"{isa}.npz", script) for isa in ("avx2", "avx512"))
    for name, logits in narrow.items():
        np.testing.assert_array_equal(logits.view(np.int32), wide[name].view(np.int32), err_msg=name)
