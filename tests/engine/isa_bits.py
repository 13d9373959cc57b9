"""Logits of models on the instruction set that TENSORMILL_ISA names, as a program of its own: isa_bits.py OUT.npz FILE…"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from engine.tiny_engine import load
from models.tiny import tokens

LENGTH = 70


def logits(path: Path) -> np.ndarray:
    """float32 [LENGTH, V] of some tokens, in one step."""
    with load(path, backend="cpu", threads=1, chunk=LENGTH, rows=LENGTH) as engine:
        return engine.session().logits(tokens("llama", LENGTH))


if __name__ == "__main__":
    np.savez(sys.argv[1], **{path.name: logits(path) for path in map(Path, sys.argv[2:])})
