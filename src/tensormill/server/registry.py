"""The models that are served: by name, loaded on demand, and unloaded, least recently used first, when memory is short.

A model that serves somebody is never unloaded. Who comes while the queue is full is told when to come again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tensormill.errors import TensorMillError
from tensormill.server.answering import threads
from tensormill.server.problem import Problem
from tensormill.server.process import EngineError
from tensormill.server.served import ServedModel

log = logging.getLogger("tensormill.server")


class Registry:
    """Models by name and alias; `memory` bytes for all that their engines allocate together (0: no bound)."""

    def __init__(
        self, models: Sequence[ServedModel], aliases: Mapping[str, str], *, memory: int = 0, max_queue: int = 64
    ) -> None:
        self.models = {m.name: m for m in models}
        self.aliases = dict(aliases)
        self.memory = memory
        self.max_queue = max_queue
        self.seconds = 1.0  # that an answer takes, smoothed: for Retry-After
        self._loading = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def requests(self) -> int:
        """Sequences under way or waiting, of all models."""
        return sum(m.requests for m in self.models.values())

    def find(self, name: str) -> ServedModel:
        """The model called that, or the first one for no name; Problem if there is none."""
        if not name:
            return next(iter(self.models.values()))
        model = self.models.get(self.aliases.get(name, name))
        if model is None:
            there = ", ".join([*self.models, *self.aliases])
            raise Problem(
                f"The model {name!r} does not exist; there are: {there}", kind="missing", param="model", code="model_not_found"
            )
        return model

    @asynccontextmanager
    async def use(self, name: str, sequences: int = 1, *, keep: float | None = None) -> AsyncIterator[ServedModel]:
        """The model, loaded, kept loaded, and with room in its queue for so many sequences.

        `keep`: seconds that it stays loaded once it is idle, None as long as there is room; who came last decides.
        """
        model = self.find(name)
        room = model.config.sequences + self.max_queue
        if sequences > room:
            raise Problem(
                f"{sequences} answers at once are more than the {room} that this server takes (--max-queue)", param="n"
            )
        if model.requests + sequences > room:
            rounds = model.requests / max(model.config.sequences, 1)
            raise Problem(
                f"the queue of {model.name!r} is full: {model.requests} under way, --max-queue {self.max_queue}",
                kind="busy",
                retry=max(1, min(60, round(self.seconds * rounds))),
            )
        model.requests += sequences
        model.keep, model.expires = keep, None
        started = time.monotonic()
        try:
            await self._load(model)
            yield model
        finally:
            model.requests -= sequences
            model.used = time.monotonic()
            self._expiring(model)
            self.seconds += 0.1 * (model.used - started - self.seconds)

    async def _load(self, model: ServedModel) -> None:
        if model.engine.loaded:
            return
        async with self._loading:
            try:
                await asyncio.get_running_loop().run_in_executor(threads, model.read)
            except TensorMillError as error:
                raise Problem(f"{model.name!r} cannot be loaded: {error}", kind="loading") from error
            await self._make_room(model)
            model.engine.launch()  # from now on it takes memory
            if self.memory:
                await self._start(model)  # how much is left for others is known when it has been loaded
        await self._start(model)

    async def _start(self, model: ServedModel) -> None:
        try:
            await model.engine.start()
        except EngineError as error:
            raise Problem(str(error), kind="loading", retry=1) from error

    async def _make_room(self, model: ServedModel) -> None:
        """Unload what nobody uses until the model fits; Problem if it never can, or what is left is in use."""
        while self.memory:
            others = [m for m in self.models.values() if m.engine.active and m is not model]
            room = self.memory - sum(m.memory for m in others)
            try:
                await asyncio.get_running_loop().run_in_executor(threads, model.fit, room)
                return
            except TensorMillError as error:
                if not others:
                    raise Problem(f"{model.name!r} does not fit into --memory: {error}", kind="loading") from error
            idle = [m for m in others if not m.requests]
            if not idle:
                raise Problem("every loaded model is serving, and memory is full (--memory)", kind="loading", retry=5)
            oldest = min(idle, key=lambda m: m.used)
            await self._unload(oldest, f"room for {model.name}")

    def _expiring(self, model: ServedModel) -> None:
        """Unload an idle model once the time is over that its last request wants it to stay (`model.keep`)."""
        if model.requests or model.keep is None:
            return
        model.expires = expires = time.time() + model.keep
        asyncio.get_running_loop().call_later(model.keep, self._expire, model, expires)

    def _expire(self, model: ServedModel, expires: float) -> None:
        if model.expires == expires:  # nobody came in between
            self._ending.add(task := asyncio.create_task(self.unload(model, "keep_alive")))
            task.add_done_callback(self._ending.discard)

    async def unload(self, model: ServedModel, why: str) -> None:
        """End the engine of a model, now or when nobody uses it any more; who comes meanwhile waits for a new one."""
        async with self._loading:
            if model.requests:
                model.keep = 0
            else:
                await self._unload(model, why)

    async def _unload(self, model: ServedModel, why: str) -> None:
        if model.engine.active:
            log.info("unloading a model", extra={"model": model.name, "why": why})
            await model.engine.stop()

    async def stop(self) -> None:
        """End every engine, for good; what is under way fails."""
        await asyncio.gather(*(m.engine.stop("the server is stopping") for m in self.models.values()))
