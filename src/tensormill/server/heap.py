"""Large buffers stay out of the heap of small objects, where each leaves a hole behind that is seldom filled.

A server reads from sockets into buffers of 256 KiB and cuts them to what came. glibc maps buffers of that size apart from its
heap until a larger one has been freed; from then on they go into the heap (mallopt(3), M_MMAP_THRESHOLD: it adapts until it is
set), and the process grew by some 60 bytes a request for as long as it lived.
"""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE = 128 * 1024  # bytes; glibc's own value before it adapts


def keep_large_buffers_apart() -> bool:
    """Whether this process's allocator took it; those of other C libraries than glibc are left as they are."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE))
    except (AttributeError, OSError, TypeError):  # no mallopt, or (Windows) nothing to ask for it
        return False
