"""Writes tests/goldens/real/*.npz: what llama.cpp makes of real models expanded to float32. Not run by the tests.

    TENSORMILL_ORACLE=oracle.py PYTHONPATH=src:tests python tests/models/make_real_goldens.py FOLDER_FOR_F32_FILES [MODEL…]

Of each model: 64 greedy tokens on five prompts with the margin between the two best logits at each, and some whole
distributions (the 64 best logits and the log-sum-exp of a few rows). The oracle is that of `make_goldens.py`, with `to_f32`,
`tokenize` and `greedy`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np

from models.make_goldens import GOLDENS, oracle
from models.real import MODELS, PROMPTS, path_of

STEPS = 64
BEST = 64


def make(name: str, run: ModuleType, folder: Path) -> None:
    """Write one golden."""
    f32 = folder / f"{name}.f32.gguf"
    run.to_f32(str(path_of(name)), str(f32))
    model = run.Oracle(str(f32), kv="f32")
    saved: dict[str, np.ndarray] = {}
    for i, prompt in enumerate(PROMPTS):
        ids = model.tokenize(prompt)
        made = model.greedy(ids, STEPS)
        logits = model.logits([*ids, *made])
        rows = logits[len(ids) - 1 : -1]
        two = np.partition(rows, -2, axis=1)[:, -2:]
        kept = np.array([0, len(ids) - 1, len(ids) + STEPS - 1], np.int32)
        best = np.argsort(-logits[kept], axis=1)[:, :BEST].astype(np.int32)
        saved |= {
            f"prompt{i}": np.array(ids, np.int32),
            f"made{i}": np.array(made, np.int32),
            f"margin{i}": two[:, 1] - two[:, 0],
            f"rows{i}": kept,
            f"best{i}": best,
            f"logits{i}": np.take_along_axis(logits[kept], best, axis=1),
            f"lse{i}": np.logaddexp.reduce(logits[kept].astype(np.float64), axis=1),
            f"spread{i}": np.ptp(logits[kept], axis=1),
        }
        print(name, i, model.tokenize(prompt)[:8], f"least margin {saved[f'margin{i}'].min():.3g}", flush=True)
    model.close()
    f32.unlink()
    (GOLDENS / "real").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(GOLDENS / "real" / f"{name}.npz", **saved)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    module = oracle()
    for wanted in sys.argv[2:] or MODELS:
        make(wanted, module, folder)
