"""The compiled module, imported once, with an error that says how to get it."""

from __future__ import annotations

from functools import cache
from typing import Any

from tensormill.errors import BackendError


@cache
def native() -> Any:
    """The module `_native`; BackendError if it was not built or this processor cannot run it."""
    try:
        from tensormill.backends.cpu import _native  # type: ignore[attr-defined,unused-ignore]
    except ImportError as why:
        raise BackendError(f"the native part of the CPU backend is not built ({why}); `make build` builds it") from why
    try:
        _native.isa()
    except RuntimeError as why:
        raise BackendError(str(why)) from why
    return _native


@cache
def pool(threads: int) -> Any:
    """The team of that many threads, shared by all executables that ask for it."""
    return native().Pool(threads)
