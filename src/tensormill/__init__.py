"""TensorMill runs GGUF language models locally; `Engine` and `Session` are its Python door, `tensormill` the shell's."""

__version__ = "0.1.0"
