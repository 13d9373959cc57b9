"""Files of a bounded folder, each checksummed, the least recently used given up first.

Nothing that goes wrong here is an error to anybody: a missing, cut or altered file is a miss, a full disk means that files are
not kept for a while; both leave a warning in the log. Several processes may share a folder, each counting what it has seen.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from errno import EINVAL
from pathlib import Path
from stat import S_ISREG

import xxhash

_HEAD = struct.Struct("<4s16sI")  # magic, checksum of all that follows it, length of the proof
_MAGIC = b"TMK1"
_PAUSE = 30.0  # seconds without writing after a write failed

log = logging.getLogger(__name__)


class Files:
    """Blobs by name in a folder of at most `most` bytes. A `proof` is stored with each and must be given again to read it."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most
        self.size = 0
        self.failures = 0  # writes that failed
        self._lock = threading.RLock()  # one thread may write while another reads
        self._sizes: OrderedDict[str, int] = OrderedDict()  # oldest first
        self._bad: set[str] = set()  # there, but of no use, and perhaps not to be removed
        self._pause_until = 0.0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in it tells of prompts
            self._scan()
        except OSError as why:
            log.warning("the folder for keys and values cannot be used, so none are kept: %s", why)
            self._pause_until = float("inf")

    def __contains__(self, name: str) -> bool:
        with self._lock:
            return name in self._sizes or (name not in self._bad and self._found(name))

    def __len__(self) -> int:
        return len(self._sizes)

    def get(self, name: str, proof: bytes) -> bytes | None:
        """What was put under a name; None if it is not there, or not what it should be."""
        try:
            data = _read(self.folder / name, self.most)
        except OSError as why:
            with self._lock:
                if name in self._sizes and not isinstance(why, FileNotFoundError):
                    log.warning("keys and values kept in a file cannot be read: %s", why)
                self._forget(name)
                self._bad.add(name)
            return None
        body = _opened(data, proof)
        if body is None:
            log.warning("%s is damaged or not what its name says, and is not used", self.folder / name)
            self.drop(name)
        return body

    def put(self, name: str, proof: bytes, body: bytes) -> bool:
        """Keep a blob, giving up others for it; False if it is not kept."""
        rest = proof + body
        data = _HEAD.pack(_MAGIC, _checksum(len(proof), rest), len(proof)) + rest
        with self._lock:
            if len(data) > self.most or time.monotonic() < self._pause_until:
                return False
            while self.size + len(data) > self.most:
                self._give_up(next(iter(self._sizes)))
        part = self.folder / f"{name}.{os.getpid()}.part"
        try:
            with open(part, "wb", opener=_private) as file:
                file.write(data)
            part.replace(self.folder / name)
        except OSError as why:
            self.failures += 1
            log.warning("%s cannot be written, so keys and values are not kept for now: %s", self.folder / name, why.strerror)
            self._pause_until = time.monotonic() + _PAUSE
            with suppress(OSError):
                part.unlink()
            return False
        with self._lock:
            self._count(name, len(data))
        return True

    def touch(self, name: str) -> None:
        """It was used just now."""
        with self._lock, suppress(OSError):
            if name in self._sizes:
                self._sizes.move_to_end(name)
                os.utime(self.folder / name)

    def drop(self, name: str) -> None:
        """Remove a file that is of no use; until it is written anew it counts as missing."""
        with self._lock:
            self._bad.add(name)
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        self._forget(name)
        with suppress(OSError):
            (self.folder / name).unlink()

    def _scan(self) -> None:
        found = []
        for entry in os.scandir(self.folder):
            with suppress(OSError):
                if entry.name.endswith(".kv") and entry.is_file(follow_symlinks=False):
                    stat = entry.stat()
                    found.append((stat.st_mtime_ns, entry.name, stat.st_size))
                elif entry.name.endswith(".part") and time.time() - entry.stat().st_mtime > 3600:
                    os.unlink(entry.path)  # of a process that was killed
        for _, name, size in sorted(found):
            self._count(name, size)
        while self.size > self.most:
            self._give_up(next(iter(self._sizes)))

    def _found(self, name: str) -> bool:
        """Whether another process put it there."""
        try:
            found = (self.folder / name).lstat()
        except OSError:
            return False
        if S_ISREG(found.st_mode):
            self._count(name, found.st_size)
        return name in self._sizes

    def _count(self, name: str, size: int) -> None:
        self._forget(name)
        self._bad.discard(name)
        self._sizes[name] = size
        self.size += size

    def _forget(self, name: str) -> None:
        self.size -= self._sizes.pop(name, 0)


def _read(path: Path, most: int) -> bytes:
    """A file's bytes; OSError for links, pipes, devices and what is larger than a whole folder may be."""
    with open(path, "rb", opener=_careful) as file:
        found = os.fstat(file.fileno())
        if not S_ISREG(found.st_mode) or found.st_size > most:
            raise OSError(EINVAL, "no plain file, or too large", str(path))
        return file.read()


def _careful(path: str, flags: int) -> int:
    """Neither follows a link nor waits at a pipe."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _private(path: str, flags: int) -> int:
    """What is in it tells of prompts: for the owner alone."""
    return os.open(path, flags, 0o600)


def _checksum(length: int, rest: bytes) -> bytes:
    return xxhash.xxh128_digest(rest, seed=length)


def _opened(data: bytes, proof: bytes) -> bytes | None:
    if len(data) < _HEAD.size:
        return None
    magic, checksum, length = _HEAD.unpack_from(data)
    rest = data[_HEAD.size :]
    if magic != _MAGIC or checksum != _checksum(length, rest) or rest[:length] != proof:
        return None
    return rest[length:]
