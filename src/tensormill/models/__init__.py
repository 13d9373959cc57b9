"""Room models: one file an architecture, named as GGUF names it; each is a function that traces arithmetic and nothing else.

`trace` turns an open GGUF file into programs. An architecture file offers `trace(g, w, c) -> named outputs`, and may offer
`ARCHITECTURES` (the names it serves, if not its own) and `IGNORED` (patterns of tensors that it knowingly leaves out).
Shared pieces are in `blocks/`, hyperparameters in `hyper.py`, lookup and checks in `registry.py`.
"""

from tensormill.models.registry import context_length, known, trace

__all__ = ["context_length", "known", "trace"]
