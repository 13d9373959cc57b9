"""The engine process: loads one model, takes messages from a socket, turns the crank, sends what was made.

Run by `process.py` as `python -m tensormill.server.worker FD`. It ends when the socket does, so it never outlives its server.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tensormill.engine.messages import Stats
from tensormill.errors import RequestError, TensorMillError
from tensormill.server.wire import Broken, Down, Load, Probe, Progress, Ready, Up, frame, receive

if TYPE_CHECKING:
    from tensormill.engine import Engine

_STATS_EVERY = 0.25  # seconds, while there is work
LEAVING = 5.0  # seconds that the disk has at the end


class Worker:
    """One engine and its crank, driven by the messages of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._inbox: queue.SimpleQueue[Down] = queue.SimpleQueue()
        self._settle: Callable[[float], None] = lambda seconds: None
        self._told = 0.0

    def serve(self) -> None:
        """Load what the first message asks for, then work until the server is gone."""
        threading.Thread(target=self._listen, daemon=True).start()
        load = self._inbox.get()
        assert isinstance(load, Load)
        try:
            self._open(load)
        except (TensorMillError, OSError, MemoryError) as error:
            self._send([Broken(str(error) or type(error).__name__)])
            return
        while True:
            self._round()

    def _open(self, load: Load) -> None:
        from tensormill.engine.crank import Crank
        from tensormill.engine.engine import Engine

        engine = Engine.load(load.path, load.config, self._progress, most=load.most, beside=_vocabulary)
        self._crank = Crank(engine)
        self._settle = engine.cache.settle
        limits = engine.limits
        width = engine.program.outputs["hidden"].shape[1]
        cached = (limits.pages[0] - 1) * limits.page
        sizes = (engine.context, cached, engine.config.sequences, engine.n_vocab, int(width), limits.rows, engine.bytes)
        self._send([Ready(*sizes)])

    def _progress(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told > _STATS_EVERY or done == total:
            self._told = now
            self._send([Progress(done, total)])

    def _listen(self) -> None:
        """Take messages in while a step runs; without a server there is nothing left to do, whatever runs."""
        try:
            while True:
                for message in receive(self._sock):
                    self._inbox.put(message)
        except (EOFError, OSError):
            self._settle(LEAVING)  # what ended requests left for the disk is still written
            os._exit(0)

    def _round(self) -> None:
        """Take in all that has come, waiting for it only if there is nothing else to do; then one step."""
        crank, replies = self._crank, list[Up]()
        probed = False
        while not self._inbox.empty() or not (crank.busy or replies):
            message = self._inbox.get()
            if isinstance(message, Probe):
                probed = True
                break
            assert not isinstance(message, Load)
            replies += crank.take(message)
        if probed or replies:
            self._send([*replies, *([self._stats()] if probed else [])])
        if crank.busy:
            made: Sequence[Up] = crank.turn()
            now = time.monotonic()
            due = now - self._told > _STATS_EVERY or not crank.busy
            if made or due:
                self._send([*made, *([self._stats()] if due else [])])

    def _stats(self) -> Stats:
        self._told = time.monotonic()
        return self._crank.stats()

    def _send(self, messages: Sequence[Up]) -> None:
        self._sock.sendall(frame(messages))


def _vocabulary(engine: Engine) -> None:
    """What answers need, a second of work for a large vocabulary: a file without a tokenizer is refused at load, and nobody
    waits for the first grammar."""
    _ = engine.tokenizer
    with suppress(RequestError):  # no grammars for a vocabulary in which nothing ends an answer
        _ = engine.grammars


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to end, after its last answer
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    try:
        Worker(sock).serve()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
