"""The real models that tests use, and where they lie (`make models` fetches them)."""

from __future__ import annotations

import os
from pathlib import Path

MODELS = {
    "smollm2-135m": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma3-270m": "gemma-3-270m-q4_k_m.gguf",
    "qwen2.5-coder-0.5b": "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
}
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a mill by the river, there lived a cat who",
    "1, 1, 2, 3, 5, 8, 13,",
    "Wasser kocht bei normalem Luftdruck bei hundert Grad; auf einem hohen Berg dagegen",
)


def path_of(name: str) -> Path:
    """The model's file, perhaps missing."""
    folder = os.environ.get("TENSORMILL_TEST_MODELS", "~/.cache/tensormill/test-models")
    return Path(folder).expanduser() / MODELS[name]
