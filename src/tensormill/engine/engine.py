"""The engine: a loaded model that can turn the crank. `Engine.load` is the one way in."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tensormill.cache import Cache, Holding, Keep
from tensormill.config import EngineConfig
from tensormill.engine.memory import free_memory
from tensormill.engine.plan import plan
from tensormill.engine.session import Session
from tensormill.engine.sizing import is_stateful
from tensormill.errors import RequestError
from tensormill.gguf import GGUFFile, Metadata
from tensormill.program import Backend, Executable, Program, Run, WeightSource, build_step
from tensormill.program.backend import Progress

if TYPE_CHECKING:
    from tensormill.chat import Prompts
    from tensormill.sampling.grammar import Grammars
    from tensormill.speculation import Proposer
    from tensormill.tokenizer import Tokenizer


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nobody looks for garbage meanwhile: a program is a hundred thousand objects that all stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Engine:
    """A model file, compiled for a backend, with its caches."""

    def __init__(
        self, file: GGUFFile, config: EngineConfig, progress: Progress | None = None, *,
        most: int | None = None, beside: Callable[[Engine], object] | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.file = file
        free = min((n for n in (free_memory(), most) if n is not None), default=None)
        made = self._plan = plan(file, config, free)
        self.context, self.chunk = made.context, made.chunk
        self.program: Program = made.program
        self.stateful = is_stateful(self.program)
        self.limits = made.limits
        self.cache = Cache(
            self.limits.pages,
            page=self.limits.page, slots=self.limits.slots, stateful=self.stateful, snapshot_budget=made.snapshots,
        )  # fmt: skip
        backend = cast(Backend, importlib.import_module(f"tensormill.backends.{config.backend}"))
        weights = WeightSource(file)
        with ThreadPoolExecutor(1, "beside-weights") as thread:
            other = thread.submit(beside, self) if beside else None
            self.executable: Executable = backend.compile(
                self.program, weights, self.limits, threads=config.threads, progress=progress
            )  # fmt: skip
        file.give_back()
        if other:
            other.result()
        if config.kv_disk is not None:
            from tensormill.engine.disk import disk_tier

            self.cache.attach(disk_tier(self, config.kv_disk))

    @classmethod
    def load(
        cls, path: str | Path, config: EngineConfig | None = None, progress: Progress | None = None, *,
        most: int | None = None, beside: Callable[[Engine], object] | None = None,
    ) -> Engine:  # fmt: skip
        """Open, trace and compile, in `most` bytes; `progress` is told of bytes of weights laid out, and of how many there are.
        `beside` runs meanwhile in a thread, with the engine that cannot compute yet: to build its tokenizer, say.

        Raises GGUFError, ModelError or BackendError, which say what is wrong with the file, and what `beside` raised.
        """
        with _no_collection():
            file = GGUFFile(path)
            try:
                return cls(file, config or EngineConfig(), progress, most=most, beside=beside)
            except BaseException:
                file.close()
                raise

    @property
    def metadata(self) -> Metadata:
        """The file's metadata."""
        return self.file.metadata

    @cached_property
    def prompts(self) -> Prompts:
        """The file's tokenizer and chat template; the room `chat` is imported at first use, for a model that only computes
        needs none of it."""
        from tensormill.chat import Prompts

        return Prompts(self.file.metadata, pre=self.config.pre, template=self.config.template)

    @property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer, built at first use; TokenizerError if it has none or an unknown one."""
        return self.prompts.tokenizer

    @cached_property
    def grammars(self) -> Grammars:
        """Compiles what answers must look like; built at first use (a second for a large vocabulary)."""
        from tensormill.sampling.grammar import Grammars

        return Grammars(self.tokenizer)

    @cached_property
    def proposer(self) -> Proposer | None:
        """What guesses tokens ahead, as the configuration says; made at first use."""
        from tensormill.engine import drafting

        return drafting.proposer(self)

    @property
    def bytes(self) -> int:
        """Memory of weights, caches, states that may be kept, and values in flight, a draft model's too."""
        return sum(self.executable.bytes.values()) + self._plan.snapshots + (self.proposer.bytes if self.proposer else 0)

    @cached_property
    def n_vocab(self) -> int:
        """How many logits a row has."""
        return cast(int, self.program.outputs["logits"].shape[1])

    @cached_property
    def components(self) -> int:
        """How many numbers a position has for RoPE."""
        positions = next((v for v in self.program.inputs if v.name == "positions"), None)
        return cast(int, positions.shape[0]) if positions else 1

    @cached_property
    def ratios(self) -> list[int]:
        """Ratios of the compressed caches, rising."""
        return sorted({c.ratio for c in self.program.caches if c.ratio > 1})

    def session(self) -> Session:
        """A new conversation."""
        return Session(self)

    def run(self, runs: Sequence[Run]) -> npt.NDArray[np.float32]:
        """Logits [R, V] of one step, as a copy."""
        return np.array(self.outputs(runs)["logits"], np.float32)

    def outputs(self, runs: Sequence[Run]) -> dict[str, npt.NDArray[Any]]:
        """What the program gives of one step, by name (logits [R, V], hidden [R, D]); valid until the next."""
        return self.executable.run(build_step(runs, components=self.components, ratios=self.ratios))

    def keep_snapshot(self, holding: Holding, why: Keep = "end") -> None:
        """Keep what a sequence's slot holds at the end of its last whole page, so that later prompts can resume there."""
        if holding.node is not None and holding.node.snapshot is None:
            states = self.executable.snapshot(holding.slot)
            self.cache.keep_snapshot(holding, states, sum(s.nbytes for s in states.values()), why)

    def check_tokens(self, tokens: Sequence[int], after: int = 0) -> None:
        """Refuse what cannot be computed `after` so many tokens: no tokens, unknown ones, more than the context."""
        length, n_vocab = after + len(tokens), self.n_vocab
        if not length:
            raise RequestError("there is nothing to compute: the prompt has no tokens")
        if length > self.context:
            raise RequestError(
                f"{length} tokens do not fit in the context of {self.context}; raise --ctx or shorten the prompt"
            )
        bad = next((t for t in tokens if not 0 <= t < n_vocab), None)
        if bad is not None:
            raise RequestError(f"token {bad} is not in the vocabulary of {n_vocab}")

    def close(self) -> None:
        """Give back the file, having written to disk what is kept there."""
        self.cache.flush()
        self.file.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
