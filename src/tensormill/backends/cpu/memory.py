"""Large blocks of memory for weights, caches and values: on huge pages where the system has them, mapped when first written."""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from functools import cache

import numpy as np
import numpy.typing as npt

from tensormill.config import in_words
from tensormill.errors import BackendError

HUGE_PAGE = 2 << 20  # bytes, on x86-64 and on most others


def region(size: int) -> npt.NDArray[np.uint8]:
    """uint8 [size] on a page border; the array keeps the mapping alive. BackendError if the machine has not so much memory."""
    if size > _memory():
        raise BackendError(
            f"one block of {in_words(size)} is needed, and this machine has {in_words(_memory())} of memory; "
            "lower --ctx, --sequences, --chunk or --rows, or choose a smaller model"
        )
    try:
        mapped = _private(max(size, 1))
    except OSError as why:
        raise BackendError(
            f"the system gives no block of {in_words(size)} ({why.strerror}); lower --ctx or --sequences, or end other programs"
        ) from why
    if size >= HUGE_PAGE:  # a smaller block would take a whole one with its neighbours, and most of that in vain
        with suppress(AttributeError, OSError):  # only Linux has it, and not every kernel
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.uint8)[:size]


def _private(size: int) -> mmap.mmap:
    """Memory of this process alone: what Python maps by itself could be shared, and shared memory gets no huge pages."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def check_room(weights: int, caches: int, values: int, room: int | None) -> None:
    """BackendError, with the numbers and what mends it, if all that is to be allocated takes more than there is room for."""
    if room is None or weights + caches + values <= room:
        return
    smaller = "lower --ctx or --sequences, keep keys and values smaller (--kv-type q8_0), lower --chunk or --rows"
    raise BackendError(
        f"weights take {in_words(weights)}, keys, values and states {in_words(caches)}, values in flight {in_words(values)}: "
        f"{in_words(weights + caches + values)} in all, and {in_words(room)} of memory are free; "
        + (f"{smaller}, or end other programs" if weights < room else "choose a smaller model, or end other programs")
    )


@cache
def _memory() -> int:
    """Bytes of memory of this machine; what no machine has where the system does not tell.

    Blocks are mapped when first written, so that a system would promise one that it can never fill, and kill the process later.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return sys.maxsize
