"""Writes tests/goldens/real/quality.npz: how far llama.cpp is from dequantised real models. Not run by the tests.

    TENSORMILL_ORACLE=oracle.py PYTHONPATH=src:tests python tests/models/make_real_quality.py [MODEL…]

On the prompts and greedy tokens of the other goldens: the KL divergence of llama.cpp on the quantised file (float32 caches)
from the reference backend's at every position, whether both have the same likeliest token, and the file's size.
"""

from __future__ import annotations

import sys

import numpy as np

from models.make_goldens import GOLDENS, oracle
from models.real import MODELS, PROMPTS, path_of
from models.test_real import logits, sequence
from tensormill.evals import Divergence

TARGET = GOLDENS / "real" / "quality.npz"


def make(name: str) -> dict[str, np.ndarray]:
    """The entries of one model."""
    model = oracle().Oracle(str(path_of(name)), kv="f32")
    found = Divergence()
    for i, base in zip(range(len(PROMPTS)), logits(name, "reference"), strict=True):
        found.add(base, model.logits([int(t) for t in np.concatenate(sequence(name, i))]))
    model.close()
    print(f"{name}: KL {found.kl.mean():.5f}, same top {found.same_top.mean():.2%}, {len(found.kl)} positions", flush=True)
    size = np.array(path_of(name).stat().st_size)
    return {f"{name}.kl": found.kl.astype(np.float32), f"{name}.same": found.same_top, f"{name}.bytes": size}


if __name__ == "__main__":
    saved = dict(np.load(TARGET)) if TARGET.exists() else {}
    for wanted in sys.argv[1:] or MODELS:
        saved |= make(wanted)
    np.savez_compressed(TARGET, **saved)
