"""One served model: its file's vocabulary and template, read here, and its engine process.

Reading a file's header costs a fraction of a second and no weights; the engine is started when the model is first used.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from tensormill.chat import ChatTemplate, Prompts
from tensormill.chat.parse import Format, named
from tensormill.config import EngineConfig, SamplingConfig, in_words
from tensormill.engine.messages import Stats
from tensormill.engine.plan import plan
from tensormill.errors import RequestError
from tensormill.gguf import GGUFFile, Metadata
from tensormill.models import context_length
from tensormill.sampling import suggested
from tensormill.server.process import EngineProcess
from tensormill.tokenizer import Tokenizer

log = logging.getLogger("tensormill.server")
_POOLINGS = {1: "mean", 2: "cls", 3: "last"}


class ServedModel:
    """A model under its name. The cached parts are built at first use, which may take a second: not on the event loop."""

    def __init__(
        self, name: str, path: Path, config: EngineConfig, *, chat_format: str | None = None,
        told: Callable[[Stats], None] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.path = path
        self.config = config
        self.created = int(path.stat().st_mtime)
        self.used = time.monotonic()
        self.requests = 0  # under way, or waiting for a load
        self.by_key: Counter[str] = Counter()  # the same, whose they are
        self.keep: float | None = (
            None  # as its last request wants it: seconds that it stays loaded when idle; None: as long as there is room
        )
        self.expires: float | None = None  # Unix time at which it will be unloaded
        self.engine = EngineProcess(path, config, told=told)
        self._granted = 0  # bytes that it may take while nobody knows how many it does
        self._chat_format = chat_format
        if chat_format is not None:
            named(chat_format)

    @cached_property
    def file(self) -> GGUFFile:
        """The open file."""
        return GGUFFile(self.path)

    @property
    def metadata(self) -> Metadata:
        """What the file says of itself."""
        return self.file.metadata

    @cached_property
    def prompts(self) -> Prompts:
        """Messages to prompts."""
        return Prompts(self.metadata, pre=self.config.pre, template=self.config.template, format=self._chat_format)

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""
        return self.prompts.tokenizer

    @property
    def template(self) -> ChatTemplate:
        """Messages to text."""
        return self.prompts.template

    @property
    def format(self) -> Format:
        """How answers are parsed."""
        return self.template.format

    @cached_property
    def sampling(self) -> SamplingConfig:
        """Sampling where a request says nothing: ours, with the file's suggestions."""
        return suggested(self.metadata)

    @cached_property
    def pooling(self) -> str:
        """How the file wants embeddings pooled; mean where it says nothing."""
        arch = self.metadata.str("general.architecture", default="")
        return _POOLINGS.get(self.metadata.int(f"{arch}.pooling_type", default=0), "mean")

    @cached_property
    def size(self) -> int:
        """Bytes of weights."""
        return sum(t.nbytes for t in self.file.tensors.values())

    @property
    def memory(self) -> int:
        """Bytes of all that its engine has allocated; while it is being loaded, of what it may."""
        return self.engine.info.bytes if self.engine.info is not None else self._granted

    def fit(self, room: int) -> None:
        """Have its engine launched in so many bytes; RequestError, with the numbers, if it would need more."""
        planned = plan(self.file, self.config, room).bytes
        if planned > room:
            raise RequestError(
                f"it takes {in_words(planned)}, and {in_words(room)} are left: lower --ctx, --sequences or --chunk"
            )
        self._granted = self.engine.most = room

    def read(self) -> None:
        """Build everything that is not the engine."""
        fresh = "prompts" not in vars(self)
        _ = self.prompts.seal, self.format, self.sampling, self.pooling
        trained = context_length(self.metadata)
        if fresh and 0 < trained < self.config.context:
            log.warning(
                "--ctx is more than the model was trained for: beyond that its answers get worse",
                extra={"model": self.name, "ctx": self.config.context, "trained": trained},
            )
        if fresh and self.template.guessed:
            log.warning(
                "no chat template in the file: a built-in one is used", extra={"model": self.name, "as": self.template.name}
            )
