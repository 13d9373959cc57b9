"""Writes tests/goldens/*.npz: logits of the tiny models by llama.cpp, float32 caches, one prefill. Not run by the tests.

    TENSORMILL_ORACLE=oracle.py PYTHONPATH=src:tests python tests/models/make_goldens.py [VARIANT…]

The oracle is a Python file with a class `Oracle(path, kv="f32")` around libllama whose
`logits(ids)` gives float32 [n, vocabulary].
A golden holds the tokens, the rows kept, their logits and the sha256 of the model file that made them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import models.zoo  # noqa: F401  fills VARIANTS
from models import tiny

TRACED, TRACED_TOKENS = "llama-experts", 2
GOLDENS = Path(__file__).parent.parent / "goldens"


def oracle() -> ModuleType:
    """The module that TENSORMILL_ORACLE names."""
    spec = importlib.util.spec_from_file_location("oracle", os.environ["TENSORMILL_ORACLE"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept(n: int) -> np.ndarray:
    """Rows that a golden keeps: the first, every third, those around page borders."""
    return np.unique(np.concatenate([[0, 1, 2, 62, 63, 64, 65, n - 1], np.arange(0, n, 3)])).astype(np.int32)


def make(name: str, run: ModuleType) -> None:
    """Write one golden."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        sha = tiny.write(name, path)
        ids = tiny.tokens(name)
        model = run.Oracle(str(path), kv="f32")
        logits = model.logits([int(i) for i in ids])
        model.close()
    rows = kept(len(ids))
    np.savez_compressed(GOLDENS / f"{name}.npz", tokens=ids, rows=rows, logits=logits[rows], sha256=np.array(sha))
    size = (GOLDENS / f"{name}.npz").stat().st_size
    print(f"{name}: logits {logits.min():.3g} … {logits.max():.3g}, finite {np.isfinite(logits).all()}, {size} bytes")


def make_trace(run: ModuleType) -> None:
    """Write the values of every node of one graph, as `tensormill trace --diff` reads them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        tiny.write(TRACED, path)
        model = run.Oracle(str(path), kv="f32")
        nodes: list[dict[str, Any]] = []
        model.logits(tiny.tokens(TRACED, TRACED_TOKENS).tolist(), trace=nodes)
        model.close()
    dump = {f"{i:05d}|{n['name']}|{n['op']}": n["value"] for i, n in enumerate(nodes) if n["value"] is not None}
    views = ("|RESHAPE", "|VIEW", "|PERMUTE", "|DUP", "|SET_ROWS")
    kept = {key: value for key, value in dump.items() if value.dtype == np.float32 and not key.endswith(views)}
    small = {key: value for key, value in kept.items() if value.nbytes <= 4096}
    np.savez_compressed(GOLDENS / "trace.npz", **small)


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    module = oracle()
    make_trace(module)
    for wanted in sys.argv[1:] or tiny.VARIANTS:
        make(wanted, module)
