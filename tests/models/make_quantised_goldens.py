"""Writes tests/goldens/quantised.npz: how far llama.cpp is from the dequantised model in every type. Not run by the tests.

    TENSORMILL_ORACLE=oracle.py PYTHONPATH=src:tests python tests/models/make_quantised_goldens.py [TYPE…]

Of each file: the KL divergence of llama.cpp's logits (float32 caches, one prefill) from the reference backend's at every
position, whether both have the same likeliest token, and the file's sha256. The oracle is that of `make_goldens.py`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np

from models import quantised
from models.driver import Driver
from models.make_goldens import GOLDENS, oracle
from tensormill.backends import reference
from tensormill.evals import Divergence
from tensormill.gguf import GGMLType

TARGET = GOLDENS / "quantised.npz"


def make(kind: GGMLType, number: int, run: ModuleType) -> dict[str, np.ndarray]:
    """The entries of one file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        sha = quantised.write(kind, number, path)
        ids = quantised.tokens(kind, number)
        with Driver(path, reference.compile, len(ids), context=len(ids)) as driver:
            base = driver.feed(ids, 0)
        model = run.Oracle(str(path), kv="f32")
        logits = model.logits([int(i) for i in ids])
        model.close()
    found = Divergence()
    found.add(base, logits)
    print(f"{kind.name:8} {found.kl.mean():.3e} same top {found.same_top.mean():.4f}, logits ± {base.std():.3g}", flush=True)
    entries = {"kl": found.kl.astype(np.float32), "same": found.same_top, "sha256": np.array(sha)}
    return {f"{kind.name}.{number}.{key}": value for key, value in entries.items()}


if __name__ == "__main__":
    saved = dict(np.load(TARGET)) if TARGET.exists() else {}
    module = oracle()
    for name in sys.argv[1:] or [kind.name for kind in quantised.TYPES]:
        for number in quantised.numbers(GGMLType[name]):
            saved |= make(GGMLType[name], number, module)
    np.savez_compressed(TARGET, **saved)
