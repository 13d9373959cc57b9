"""Runs one sequence through a compiled program, in one step or in chunks: the smallest possible engine, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

from tensormill import models
from tensormill.errors import BackendError
from tensormill.gguf import GGUFFile
from tensormill.program import Executable, Limits, Program, Run, Step, WeightSource, build_step

Compile = Callable[..., Executable]
CONTEXT = 256
PAGE = 64


def backend(name: str) -> Compile:
    """The compile of a backend; tests that call it are skipped where the backend is not built."""
    compile: Compile = import_module(f"tensormill.backends.{name}").compile

    def built(*args: Any, **kwargs: Any) -> Executable:
        try:
            return compile(*args, **kwargs)
        except BackendError as error:
            if "not built" in str(error):
                pytest.skip(str(error))
            raise

    return built


def lifetimes(program: Program) -> set[int]:
    """0 (whole) and the windows of a program's paged caches."""
    return {0} | {c.window for c in program.caches if c.kind == "paged"}


class Driver:
    """An open model on one backend; `chunk` is the most tokens a step will have."""

    def __init__(self, path: Path, compile: Compile, chunk: int, *, kv_type: Any = "f32", context: int = CONTEXT) -> None:
        self.file = GGUFFile(path)
        self.program: Program = models.trace(self.file)["main"]
        whole = -(-context // PAGE)
        self._ring = {w: min(whole, -(-(w + chunk) // PAGE) + 1) if w else whole for w in lifetimes(self.program)}
        limits = Limits(tokens=chunk, rows=chunk, pages={w: n + 1 for w, n in self._ring.items()}, kv_type=kv_type)
        self.executable = compile(self.program, WeightSource(self.file), limits)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.close()

    def feed(self, ids: Sequence[int] | np.ndarray, past: int, want: Sequence[int] | None = None) -> np.ndarray:
        """One step; float32 logits [len(ids), V] of all its tokens, or of the wanted offsets."""
        return np.array(self.executable.run(self._step(ids, past, want))["logits"])

    def values(self, ids: Sequence[int] | np.ndarray) -> dict[str, np.ndarray]:
        """Every value of one step from the beginning, all rows wanted; the reference backend only."""
        made = self.executable.values(self._step(ids, 0, None))  # type: ignore[attr-defined]
        return {name: np.array(value) for name, value in made.items()}

    def _step(self, ids: Sequence[int] | np.ndarray, past: int, want: Sequence[int] | None) -> Step:
        rows = range(len(ids)) if want is None else want
        return build_step([Run(tokens=ids, past=past, pages=self._tables(past + len(ids)), slot=1, want=rows)])

    def _tables(self, length: int) -> dict[int, list[int]]:
        """Pages in falling order; a window's go round a ring that is just long enough, so a page too few is a wrong logit."""
        return {w: [n - i % n for i in range(-(-length // PAGE))] for w, n in self._ring.items()}

    def logits(self, ids: np.ndarray, chunk: int) -> np.ndarray:
        """float32 [len(ids), V], fed `chunk` tokens at a time."""
        return np.concatenate([self.feed(ids[at : at + chunk], at) for at in range(0, len(ids), chunk)])
