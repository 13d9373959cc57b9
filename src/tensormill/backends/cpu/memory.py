"""Large blocks of memory for weights, caches and values: on huge pages where the system has them, mapped when first written."""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from functools import cache

import numpy as np
import numpy.typing as npt

from tensormill.errors import BackendError


def region(size: int) -> npt.NDArray[np.uint8]:
    """uint8 [size] on a page border; the array keeps the mapping alive. BackendError if the machine has not so much memory."""
    if size > _memory():
        raise BackendError(
            f"one block of {size / 1e9:.1f} GB is needed, and this machine has {_memory() / 1e9:.1f} GB of memory; "
            "lower --ctx, --sequences, --chunk or --rows, or choose a smaller model"
        )
    try:
        mapped = mmap.mmap(-1, max(size, 1))
    except OSError as why:
        raise BackendError(
            f"the system gives no block of {size / 1e9:.1f} GB ({why.strerror}); "
            "lower --ctx or --sequences, or end other programs"
        ) from why
    with suppress(AttributeError, OSError):  # only Linux has it, and not every kernel
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.uint8)[:size]


@cache
def _memory() -> int:
    """Bytes of memory of this machine; what no machine has where the system does not tell.

    Blocks are mapped when first written, so that a system would promise one that it can never fill, and kill the process later.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return sys.maxsize
