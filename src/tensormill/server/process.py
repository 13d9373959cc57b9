"""The engine in a process of its own, seen from the server: load it, stream answers, cancel, and start it again when it dies.

A dead engine fails what was under way at once, and serves on after a restart; one that cannot load stays down until asked
again. Everything here runs on the server's event loop; what the process does is `worker.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec

from tensormill.config import EngineConfig
from tensormill.engine.messages import Cancel, Embed, Embedded, Failed, Generate, Output, Score, Scored, Stats
from tensormill.errors import TensorMillError
from tensormill.server.wire import Broken, Down, Load, Probe, Progress, Ready, Up, frame, read

log = logging.getLogger("tensormill.server")
_QUICK = 30.0  # seconds: dying earlier than this after a start is no accident
_ATTEMPTS = 4
_STOPPED = "the engine was stopped"
LEAVING = 6.0  # seconds that an engine which writes to disk has at its end


class EngineError(TensorMillError):
    """The engine failed a request: `kind` request (the client's fault), engine (ours), load (the model cannot be loaded)."""

    def __init__(self, message: str, kind: str = "engine") -> None:
        super().__init__(message)
        self.kind = kind


Inbox = asyncio.Queue[Output | Embedded | Scored | Failed]


class EngineProcess:
    """One model's engine process and the requests under way on it."""

    def __init__(self, path: Path, config: EngineConfig, *, told: Callable[[Stats], None] | None = None) -> None:
        self.path = path
        self.config = config
        self.most: int | None = None  # bytes that it may take when it is launched
        self.info: Ready | None = None
        self.stats = Stats(0, 0, 0.0, 0, 0, 0, 0)
        self.progress = Progress(0, 0)
        self.restarts = 0
        self.pid = 0
        self._told = told
        self._inboxes: dict[str, Inbox] = {}
        self._probes: list[asyncio.Future[Stats]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._trouble = ""
        self._over = ""  # why it is never to be launched again

    @property
    def loaded(self) -> bool:
        """Whether it takes requests now."""
        return self._writer is not None and self.info is not None

    @property
    def active(self) -> bool:
        """Whether it is loaded or about to be: it takes memory."""
        return self._task is not None and not self._task.done()

    @property
    def failed(self) -> bool:
        """Whether it could not be loaded, or did not stay so, when that was last tried."""
        return bool(self._trouble) and self._trouble != _STOPPED and not self.active

    @property
    def busy(self) -> int:
        """Requests under way."""
        return len(self._inboxes)

    def launch(self) -> None:
        """Begin to load the model, unless that was begun."""
        if not self.active and not self._over:
            self._trouble = ""
            self._ready.clear()
            self._task = asyncio.create_task(self._supervise(), name=f"engine {self.path.name}")

    async def start(self) -> Ready:
        """Load the model, or wait until somebody else's call has; EngineError says why it cannot be loaded."""
        self.launch()
        while self.info is None:
            if not self._over:
                await self._ready.wait()
            if trouble := self._over or self._trouble:
                raise EngineError(trouble, "load")
        return self.info

    async def stop(self, over: str = "") -> None:
        """End the process; what is under way fails. It is not `loaded` any more; with a reason why it is `over`, for good."""
        self.info = None
        self._over = self._over or over
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def stream(self, request: Generate) -> AsyncGenerator[Output, None]:
        """The answer, bit by bit; leaving early cancels it. EngineError if it fails."""
        inbox = await self._submit(request)
        done = False
        try:
            while not done:
                reply = await inbox.get()
                if isinstance(reply, Failed):
                    done = True
                    raise EngineError(reply.message, reply.kind)
                assert isinstance(reply, Output)
                done = reply.finish is not None
                yield reply
        finally:
            self._leave(request.id, cancel=not done)

    async def embed(self, request: Embed) -> Embedded:
        """A text's embedding; EngineError if it fails."""
        reply = await self._read(request)
        assert isinstance(reply, Embedded)
        return reply

    async def score(self, request: Score) -> Scored:
        """How likely a text is; EngineError if it fails."""
        reply = await self._read(request)
        assert isinstance(reply, Scored)
        return reply

    async def _read(self, request: Embed | Score) -> Output | Embedded | Scored:
        inbox = await self._submit(request)
        done = False
        try:
            reply = await inbox.get()
            done = True
            if isinstance(reply, Failed):
                raise EngineError(reply.message, reply.kind)
            return reply
        finally:
            self._leave(request.id, cancel=not done)

    async def probe(self) -> Stats:
        """Statistics as of now, between two steps; the last ones known if the engine is not there."""
        if not self.loaded:
            return self.stats
        future: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._probes.append(future)
        self._send(Probe())
        return await future

    async def _submit(self, request: Generate | Embed | Score) -> Inbox:
        await self.start()
        inbox: Inbox = asyncio.Queue()
        try:
            self._send(request)
        except OverflowError as error:
            raise EngineError("a number of the request is too large", "request") from error
        self._inboxes[request.id] = inbox
        return inbox

    def _leave(self, id: str, *, cancel: bool) -> None:
        if self._inboxes.pop(id, None) is not None and cancel and self.loaded:
            self._send(Cancel(id))

    def _send(self, message: Down) -> None:
        assert self._writer is not None
        self._writer.write(frame([message]))

    async def _supervise(self) -> None:
        """Run the process, again whenever it dies, until it cannot be loaded or dies too often."""
        failures = 0
        try:
            while not self._trouble:
                started = time.monotonic()
                await self._run()
                if self._trouble:
                    break
                failures = failures + 1 if time.monotonic() - started < _QUICK else 1
                if failures > _ATTEMPTS:
                    self._trouble = f"the engine of {self.path.name} died {failures} times in a row"
                    break
                self.restarts += 1
                log.error("engine process died; starting it again", extra={"model": self.path.name, "failures": failures})
                await asyncio.sleep(0.1 * 4 ** (failures - 1) if failures > 1 else 0)
        except Exception as error:
            log.exception("the engine's supervisor failed")
            self._trouble = f"the engine cannot be run: {error}"
        finally:
            self.info = None
            self._trouble = self._trouble or _STOPPED
            self._ready.set()

    async def _run(self) -> None:
        """One life of the process."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "tensormill.server.worker", str(theirs.fileno())]
            process = await asyncio.create_subprocess_exec(
                *command, pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL, env=_environment()
            )
        self.pid = process.pid
        reader, writer = await asyncio.open_connection(sock=ours)
        self._writer = writer
        try:
            self._send(Load(str(self.path), self.config, self.most))
            while True:
                for message in await read(reader):
                    self._take(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._down()
            writer.close()
            if self.config.kv_disk is not None:  # it ends by itself, having written what waits
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(process.wait()), LEAVING)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())

    def _take(self, message: Up) -> None:
        match message:
            case Output() | Embedded() | Scored() | Failed():
                if (inbox := self._inboxes.get(message.id)) is not None:
                    inbox.put_nowait(message)
            case Stats():
                self._heard(message)
            case Progress():
                self.progress = message
            case Ready():
                self.info = message
                self._ready.set()
                log.info("model loaded", extra={"model": self.path.name, "context": message.context, "bytes": message.bytes})
            case Broken():
                self._trouble = message.message
                log.error("a model cannot be loaded", extra={"model": self.path.name, "error": message.message})

    def _heard(self, stats: Stats) -> None:
        self.stats = stats
        probes, self._probes = self._probes, []
        for future in probes:
            if not future.done():
                future.set_result(stats)
        if self._told is not None:
            self._told(stats)

    def _down(self) -> None:
        """The process is gone: whoever waits learns it now."""
        self._writer, self.info, self.pid = None, None, 0
        if not self._trouble:
            self._ready.clear()
        why, kind = "the engine died while it worked on this request; try again", "engine"
        if self._over:
            why, kind = self._over, "load"
        for id, inbox in self._inboxes.items():
            inbox.put_nowait(Failed(id, why, kind))
        self._heard(msgspec.structs.replace(self.stats, running=0, waiting=0, usage=0.0, held=0))


def _environment() -> dict[str, str]:
    """This process's, with the package findable however it was found here."""
    source = str(Path(__file__).resolve().parents[2])
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
