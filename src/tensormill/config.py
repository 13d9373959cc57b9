"""Every setting, as frozen dataclasses: written once, read by flags, files, environment and docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How a model is loaded and run."""

    backend: Literal["cpu", "reference"] = "cpu"
    """Which backend runs the model; `reference` is the slow NumPy definition."""
    threads: int = 0
    """Threads of the CPU backend; 0: as many as the machine has cores."""
    context: int = 0
    """Most tokens a conversation may have; 0: the model's own limit, at most 8192."""
    chunk: int = 512
    """Most tokens of a prompt that are computed at once."""
    kv_type: Literal["f32", "f16"] = "f16"
    """How keys and values are kept."""
    rows: int = 1
    """Most rows of logits that are wanted at once (`tensormill logits` wants all)."""
    sequences: int = 1
    """Most sequences that are computed together."""
    pre: str | None = None
    """Pre-tokenizer to use instead of the one the file names."""
