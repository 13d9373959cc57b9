"""The engine: a loaded model that can turn the crank. `Engine.load` is the one way in."""

from __future__ import annotations

import importlib
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import cast

import numpy as np
import numpy.typing as npt

from tensormill import models
from tensormill.chat import ChatTemplate
from tensormill.config import EngineConfig
from tensormill.engine.paging import SinglePager
from tensormill.engine.session import Session
from tensormill.errors import RequestError
from tensormill.gguf import GGUFFile, Metadata
from tensormill.program import Backend, Limits, Program, Step, WeightSource
from tensormill.program.backend import Progress
from tensormill.tokenizer import Tokenizer

DEFAULT_CONTEXT = 8192


class Engine:
    """A model file, compiled for a backend, with caches for one session."""

    def __init__(self, file: GGUFFile, config: EngineConfig, progress: Progress | None = None) -> None:
        self.config = config
        self._file = file
        self.program: Program = models.trace(file)["main"]
        self.context = _context(config.context, models.context_length(file.metadata))
        limits = self._limits()
        backend = cast(Backend, importlib.import_module(f"tensormill.backends.{config.backend}"))
        self._executable = backend.compile(
            self.program, WeightSource(file), limits, threads=config.threads, progress=progress
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | Path, config: EngineConfig | None = None, progress: Progress | None = None) -> Engine:
        """Open, trace and compile; `progress` is told of bytes of weights laid out, and of how many there are.

        Raises GGUFError, ModelError or BackendError, which say what is wrong with the file.
        """
        file = GGUFFile(path)
        try:
            return cls(file, config or EngineConfig(), progress)
        except BaseException:
            file.close()
            raise

    def _limits(self) -> Limits:
        chunk = min(self.config.chunk, self.context)
        windows = SinglePager.windows_of(self.program)
        self.pager = SinglePager(windows, self.context, chunk, Limits().page)
        rows = min(self.config.rows, chunk)
        return Limits(tokens=chunk, rows=rows, pages=self.pager.pages, kv_type=self.config.kv_type)

    @property
    def metadata(self) -> Metadata:
        """The file's metadata."""
        return self._file.metadata

    @property
    def file(self) -> GGUFFile:
        """The open file."""
        return self._file

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer, built at first use; TokenizerError if it has none or an unknown one."""
        return Tokenizer.from_metadata(self.metadata, pre=self.config.pre)

    @cached_property
    def template(self) -> ChatTemplate:
        """The file's chat template, or a built-in one that suits its vocabulary."""
        t = self.tokenizer
        bos, eos = ("" if i is None else t.tokens[i] for i in (t.bos, t.eos))
        return ChatTemplate.from_metadata(self.metadata, bos=bos, eos=eos)

    @property
    def n_vocab(self) -> int:
        """How many logits a row has."""
        return cast(int, self.program.outputs["logits"].shape[1])

    @property
    def components(self) -> int:
        """How many numbers a position has for RoPE."""
        positions = next((v for v in self.program.inputs if v.name == "positions"), None)
        return cast(int, positions.shape[0]) if positions else 1

    def session(self) -> Session:
        """A new conversation. The engine holds caches for one: an older session must not be used after."""
        return Session(self)

    def run(self, step: Step) -> npt.NDArray[np.float32]:
        """Logits [R, V] of one step, as a copy."""
        return np.array(self._executable.run(step)["logits"], np.float32)

    def can_resume(self, at: int, length: int) -> bool:
        """Whether a sequence may be cut back from `length` tokens to `at`: recurrent states cannot rewind."""
        if at == length:
            return True
        return all(c.kind == "paged" for c in self.program.caches) and self.pager.can_resume(at, length)

    def close(self) -> None:
        """Give back the file."""
        self._file.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _context(asked: int, trained: int) -> int:
    if asked < 0:
        raise RequestError(f"a context of {asked} tokens makes no sense; give --ctx a positive number or 0 for the model's own")
    return asked or min(trained, DEFAULT_CONTEXT)
