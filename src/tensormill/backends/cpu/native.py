"""The compiled module, imported once, with an error that says how to get it."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import Any

from tensormill.backends.cpu.cores import starting
from tensormill.errors import BackendError

log = logging.getLogger("tensormill.cpu")


@cache
def native() -> Any:
    """The module `_native`; BackendError if it was not built or this processor cannot run it."""
    try:
        module = import_module("tensormill.backends.cpu._native")
    except ImportError as why:
        raise BackendError(f"the native part of the CPU backend is not built ({why}); `make build` builds it") from why
    try:
        module.isa()
    except RuntimeError as why:
        raise BackendError(str(why)) from why
    if doubt := module.isa_doubt():
        log.warning(doubt)
    return module


@cache
def pool(threads: int) -> Any:
    """The team of that many threads, shared by all executables that ask for it."""
    with starting(threads):
        return native().Pool(threads)
