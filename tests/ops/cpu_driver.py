"""The driver of tiny models on the CPU backend, and one-op programs on both backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ops.driver import PAGE, Driver
from ops.tiny import Memory, Model
from tensormill.backends import reference
from tensormill.backends.cpu import CPUExecutable, compile
from tensormill.backends.cpu.caches import Pages
from tensormill.program import Limits, Run, Scope, Step, Tracer, Value, WeightSource, build_step


class CPUDriver(Driver):
    """Feeds the CPU backend; every cache starts poisoned."""

    def __init__(self, model: Model, *, drafts: int = 3, seed: int = 0, threads: int = 2, **limits: Any) -> None:
        super().__init__(model, drafts=drafts, seed=seed)
        self.limits = replace(self.limits, **limits)
        self.executable: CPUExecutable = compile(model.program, model.source, self.limits, threads=threads)
        self.executable.poison()

    def poison(self, lifetime: int, page: int) -> None:
        for pages in self.executable._caches(Pages):
            if pages.cache.window == lifetime:
                pages.memory[page] = 0xFF


Body = Callable[[Tracer, Scope, Value], Value]


class OneOp:
    """A small program over x [T, width] (table `x` looked up by the tokens 0…T−1), compiled for both backends."""

    def __init__(self, x: np.ndarray, body: Body, *, drafts: int = 0, page: int = PAGE, **weights: np.ndarray) -> None:
        self.x = np.ascontiguousarray(x, np.float32)
        file = Memory({}, x=self.x, **weights)
        g = Tracer("one", dict(file.tensors))
        w = Scope(g)
        self.program = g.program(out=body(g, w, g.embed(g.step.tokens, w.x)))
        self.source = WeightSource(file)
        windows = {c.window for c in self.program.caches} | {0}
        pages = dict.fromkeys(windows, 80)
        self.limits = Limits(
            tokens=len(x), sequences=4, rows=len(x), drafts=drafts, pages=pages, slots=5, page=page, kv_type="f32"
        )

    def step(self, lengths: Sequence[int], at: Sequence[int] | None = None, **fields: Any) -> Step:
        """Sequences of these lengths one after another, their tokens being rows of x, on scattered pages."""
        runs, row = [], 0
        free = np.random.default_rng(1).permutation(np.arange(1, 80))
        for s, n in enumerate(lengths):
            past = at[s] if at else 0
            mine = free[s * 16 : s * 16 + 16].tolist()
            pages = dict.fromkeys(self.limits.pages, mine)
            runs.append(Run(np.arange(row, row + n), past, pages=pages, slot=s + 1, want=range(n)))
            row += n
        return replace(build_step(runs, ratios=(4,)), **fields)

    def reference(self, *steps: Step) -> np.ndarray:
        made = reference.compile(self.program, self.source, self.limits, precision=np.float64)
        return np.concatenate([made.run(s)["out"] for s in steps])

    def cpu(self, *steps: Step, threads: int = 2, fused: bool = True) -> np.ndarray:
        made = compile(self.program, self.source, self.limits, threads=threads, fused=fused)
        made.poison()
        return np.concatenate([np.array(made.run(s)["out"]) for s in steps])

    def check(self, *lengths: int, rtol: float = 2e-6, step: Step | None = None) -> np.ndarray:
        """Both backends agree to `rtol` of the largest number; one thread gives the bits of two. Returns what was made."""
        step = step or self.step(lengths or (len(self.x),))
        expected, got = self.reference(step), self.cpu(step)
        assert got.shape == expected.shape
        finite = np.abs(expected[np.isfinite(expected)])
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=rtol * float(finite.max(initial=1e-30)))
        np.testing.assert_array_equal(self.cpu(step, threads=1).view(np.int32), got.view(np.int32))
        return got


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)
