"""What an engine will be, worked out before anything is allocated: its program, its limits, and how many bytes that takes.

The engine is made by it; a server asks it which models fit beside each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from tensormill import models
from tensormill.config import EngineConfig, bytes_of
from tensormill.engine.memory import SHARE
from tensormill.engine.sizing import Sizes, cache_bytes, is_stateful, limits
from tensormill.gguf import GGUFFile
from tensormill.program import Limits, Program, Value
from tensormill.program.passes import plan_memory, prepare

DEFAULT_CONTEXT = 8192
SNAPSHOTS = 1 << 30  # bytes for states that later prompts may resume behind; less where little is free
KERNELS = 1 << 20  # bytes that a backend's kernels may want beside the values of a step


@dataclass(frozen=True, slots=True)
class Plan:
    """A model as it will be run: of at most `context` tokens, `chunk` of them a step."""

    program: Program
    context: int
    chunk: int
    limits: Limits
    weights: int  # bytes, a draft model's too
    snapshots: int  # bytes for states of recurrent layers that later prompts may resume behind

    @property
    def bytes(self) -> int:
        """Bytes of all that will be allocated; a backend needs no more for its values than a program without fusions does."""
        return self._besides + plan_memory(prepare(self.program), self._size).size

    @property
    def most(self) -> int:
        """More than `bytes`, and known at once: as if no two values shared a place."""
        return self._besides + sum(self._size(value) for op in self.program.ops for value in op.outputs)

    @property
    def _besides(self) -> int:
        limits = self.limits
        caches = cache_bytes(self.program, dict(limits.pages), limits.page, limits.kv_type, limits.slots, limits.drafts)
        return self.weights + caches + self.snapshots

    def _size(self, value: Value) -> int:
        return 4 * prod(self.limits.size(n) if isinstance(n, str) else n for n in value.shape)


def plan(file: GGUFFile, config: EngineConfig, free: int | None) -> Plan:
    """The plan for a model in `free` bytes (None: unknown); RequestError, with the numbers, where the caches cannot fit."""
    trained = models.context_length(file.metadata)
    context = config.context or min(trained or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    chunk = min(config.chunk, context)
    program = models.trace(file, context=context)["main"]
    snapshots = (min(SNAPSHOTS, free // 8) if free is not None else SNAPSHOTS) if is_stateful(program) else 0
    weights = sum(t.nbytes for t in file.tensors.values())
    if config.draft_model is not None and Path(config.draft_model).is_file():
        weights += Path(config.draft_model).stat().st_size
    left = None if free is None else free - snapshots
    given = config.kv_memory
    memory = bytes_of(given, "kv-memory") if given else None if left is None else int(SHARE * max(left - weights, 0))
    sizes = Sizes(
        config.sequences, context, config.kv_tokens, chunk, min(config.rows, chunk), config.guesses,
        memory=memory, free=left, weights=weights,
    )  # fmt: skip
    made = Plan(program, context, chunk, limits(program, sizes, config.kv_type), weights, snapshots)
    if free is None or memory is None or given or made.most + KERNELS <= free:
        return made
    if (over := made.bytes + KERNELS - free) <= 0:
        return made
    less = replace(sizes, memory=max(memory - over, 0))  # where little is free, the share leaves too little for values
    return replace(made, limits=limits(program, less, config.kv_type))
