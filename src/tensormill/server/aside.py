"""Work off the event loop, on threads: what requests cost before an engine hears of them, and what is read of model files.

A thread is somebody's until the work is really done, however early the client goes, and no key has all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class Aside:
    """So many threads, of which each key has at most `each`; its other work waits for its own."""

    def __init__(self, threads: int, each: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="aside")
        self._each = each
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def run(self, key: str, work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
        """What `work` returns or raises; if cancelled it goes on to its end, and its thread is the key's until then."""
        turn = self._turns.setdefault(key, asyncio.Semaphore(self._each))
        await turn.acquire()
        future = self._threads.submit(work, *arguments)
        loop = asyncio.get_running_loop()

        def release(done: Future[T]) -> None:
            with suppress(RuntimeError):  # the server has ended meanwhile
                loop.call_soon_threadsafe(turn.release)

        future.add_done_callback(release)
        return await asyncio.wrap_future(future)


requests = Aside(threads=4, each=2)
_files = Aside(threads=2, each=2)


async def reading(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """What `work` reads of model files: on threads of its own, so that no request is in its way."""
    return await _files.run("", work, *arguments)
