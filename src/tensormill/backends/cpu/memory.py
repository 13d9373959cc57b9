"""Large blocks of memory for weights, caches and values: on huge pages where the system has them, mapped when first written."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
import numpy.typing as npt


def region(size: int) -> npt.NDArray[np.uint8]:
    """uint8 [size] on a page border; the array keeps the mapping alive."""
    mapped = mmap.mmap(-1, max(size, 1))
    with suppress(AttributeError, OSError):  # only Linux has it, and not every kernel
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, np.uint8)[:size]
