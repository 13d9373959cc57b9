"""What a backend is: it compiles a program against weights and limits, and runs steps (DESIGN §1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tensormill.program.ir import Program
from tensormill.program.kv import KVType
from tensormill.program.step import Step
from tensormill.program.weights import WeightSource

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest step and the size of the caches, for which memory is planned once."""

    tokens: int = 512  # T
    sequences: int = 1  # S
    rows: int = 512  # R
    media: int = 0  # M
    drafts: int = 0  # rejected tokens a sequence may have in a step
    pages: Mapping[int, int] = field(default_factory=lambda: {0: 65})  # lifetime → pages, page 0 included (scratch)
    slots: int = 2  # slot 0 is scratch
    page: int = 64  # tokens a page
    kv_type: KVType = "f16"
    memory: int | None = None  # bytes for weights, caches and values together; None: no bound

    def size(self, symbol: str) -> int:
        """The largest value of a symbolic dimension."""
        if symbol.startswith("C"):
            return self.tokens // int(symbol[1:]) + self.sequences
        return {"T": self.tokens, "S": self.sequences, "R": self.rows, "M": self.media}[symbol]


class Executable(Protocol):
    """A compiled program with its weights and caches."""

    def run(self, step: Step) -> dict[str, npt.NDArray[Any]]:
        """Replay the program; the named outputs (e.g. `logits` float32 [R, V]) are valid until the next run."""

    def copy_page(self, lifetime: int, source: int, target: int) -> None:
        """Copy a page of every cache of that lifetime."""

    def read_page(self, lifetime: int, page: int) -> bytes:
        """The bytes of a page of every cache of that lifetime, in this backend's own layout."""

    def write_page(self, lifetime: int, page: int, data: bytes) -> None:
        """Put the bytes of a page back; ValueError if they are not as many as a page has."""

    def snapshot(self, slot: int) -> dict[str, npt.NDArray[np.float32]]:
        """What a slot holds, by cache name."""

    def restore(self, slot: int, snapshot: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Put a snapshot into a slot."""

    @property
    def bytes(self) -> Mapping[str, int]:
        """Memory by use: weights, caches, arena (values in flight)."""


class Backend(Protocol):
    """A room of `backends/`: its `compile`."""

    def compile(
        self,
        program: Program,
        weights: WeightSource,
        limits: Limits,
        *,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> Executable:
        """Choose kernels, lay out weights, plan memory; BackendError names an op that it cannot serve, with the reason."""
