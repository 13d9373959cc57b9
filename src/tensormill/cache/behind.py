"""Writes to the disk tier's folder behind the engine's back: steps go on while a thread waits for the disk.

What is to be written is a promise: a way to read its bytes, which the thread uses when its turn comes. Where the bytes are
about to change (a page leaves the tree) they are read at once, and dropped if too many wait already. What waits can be had like
what is written. The thread ends when nothing waits, and a process does not end before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tensormill.cache.files import Files

Read = Callable[[], bytes]


@dataclass(eq=False, slots=True)
class _Job:
    """Bytes to be written under a name; not read yet while `body` is None."""

    proof: bytes
    read: Read
    body: bytes | None = None


class Behind:
    """`Files` with a thread that writes; `most`: bytes that may wait for it."""

    def __init__(self, files: Files, most: int = 256 << 20) -> None:
        self.files = files
        self._most = most
        self._jobs: dict[str, _Job] = {}  # the first is being written while the thread runs
        self._waiting = 0  # bytes that were read
        self._changed = threading.Condition()  # held while bytes are read: they may not change meanwhile
        self._thread: threading.Thread | None = None

    def __contains__(self, name: str) -> bool:
        with self._changed:
            if name in self._jobs:
                return True
        return name in self.files

    def later(self, name: str, proof: bytes, read: Read) -> None:
        """Write what `read` gives, some time before `now` is called for the same name."""
        with self._changed:
            if name not in self._jobs and name not in self.files:
                self._add(name, _Job(proof, read))

    def now(self, name: str, proof: bytes, read: Read) -> None:
        """`read` will not do any more: keep its bytes, unless too many wait already."""
        with self._changed:
            job = self._jobs.get(name)
            if (job is None and name in self.files) or (job is not None and job.body is not None):
                return
            body = read() if self._waiting < self._most else None
            if body is None:
                self._jobs.pop(name, None)
            elif job is not None:
                self._keep(job, body)
            else:
                job = _Job(proof, read)
                self._keep(job, body)
                self._add(name, job)

    def get(self, name: str, proof: bytes) -> bytes | None:
        """What was put under a name; None if it is not there, or not what it should be."""
        with self._changed:
            job = self._jobs.get(name)
            if job is not None and job.proof == proof:
                return job.read() if job.body is None else job.body
        return self.files.get(name, proof)

    def touch(self, name: str) -> None:
        """It was used just now."""
        self.files.touch(name)

    def drop(self, name: str) -> None:
        """Remove what is of no use."""
        self.files.drop(name)

    def settle(self, seconds: float | None = None) -> None:
        """Wait until all is written, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs, seconds)

    def _keep(self, job: _Job, body: bytes) -> None:
        job.body = body
        self._waiting += len(body)

    def _add(self, name: str, job: _Job) -> None:
        self._jobs[name] = job
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="kv-disk")
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._jobs:
                    self._thread = None
                    return
                name, job = next(iter(self._jobs.items()))
                if job.body is None:
                    self._keep(job, job.read())
                body = job.body
            assert body is not None
            self.files.put(name, job.proof, body)
            with self._changed:
                self._waiting -= len(body)
                del self._jobs[name]
                self._changed.notify_all()
