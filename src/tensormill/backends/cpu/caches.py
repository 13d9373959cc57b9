"""Memory of the caches: pages and slots, and the numbers by which kernels find rows in them.

The layout of a page is drawn in `csrc/ops/op.h`. Memory is not cleared, as recycled pages are not: nobody reads a row that
nobody wrote, which tests check by poisoning it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.backends.cpu.memory import region
from tensormill.errors import BackendError
from tensormill.gguf import GGMLType
from tensormill.program.backend import Limits
from tensormill.program.ir import Cache
from tensormill.program.kv import KV_TYPES, check_kv_type

LANES, BLOCK = 16, 64
STYLES = {"causal": 0, "slide": 0, "chunk": 1, "centred": 2}


@dataclass(eq=False, slots=True)
class Pages:
    """One paged cache: `memory` [pages, page bytes], and the fields of PagedCache."""

    cache: Cache
    memory: npt.NDArray[np.uint8]
    fields: list[int]


@dataclass(eq=False, slots=True)
class Slots:
    """One ring or state: `memory` [slots, floats]."""

    cache: Cache
    memory: npt.NDArray[np.float32]
    rows: int
    width: int
    state: int


def padded(n: int) -> int:
    """Up to whole vectors."""
    return -(-n // LANES) * LANES


def make_pages(cache: Cache, limits: Limits, table: int) -> Pages:
    """Allocate a paged cache; BackendError if its ratio does not divide the page."""
    if limits.page % cache.ratio:
        raise BackendError(f"cache {cache.name}: a page of {limits.page} tokens is no multiple of its ratio {cache.ratio}")
    if cache.window not in limits.pages:
        raise BackendError(f"cache {cache.name} needs pages of lifetime {cache.window}; limits have {sorted(limits.pages)}")
    check_kv_type(cache, limits.kv_type)
    kind = KV_TYPES[limits.kv_type]
    per_page = limits.page // cache.ratio
    rows = min(per_page, BLOCK)
    if per_page % rows:
        raise BackendError(f"cache {cache.name}: {per_page} rows a page are no whole blocks of {rows}")
    (heads, k), v = cache.k, cache.v[1] if cache.v else 0
    lanes = padded(rows)
    integers = v > 0 and limits.kv_type == "f16"  # rows of integers, each with a scale of two bytes
    v_offset = (2 + 2 * (k + k % 2) if integers else kind.row_bytes(k)) * lanes if v else 0
    if integers:
        block = v_offset + lanes * (2 + 2 * padded(v))
    elif v and kind.block > 1:
        block = v_offset + lanes * kind.row_bytes(v)
    else:
        block = v_offset + rows * kind.row_bytes(padded(v) if v else padded(k))
    block = -(-block // 64) * 64
    blocks = per_page // rows
    pages = limits.pages[cache.window]
    memory = region(pages * heads * blocks * block).reshape(pages, -1)
    fields = [
        heads * blocks * block,
        blocks * block,
        block,
        v_offset,
        pages,
        heads,
        k,
        v,
        rows,
        blocks,
        lanes,
        _stride(kind, k),
    ]
    fields += [_stride(kind, v), cache.ratio, cache.window, STYLES[cache.style], int(kind), table]
    return Pages(cache, memory, fields)


def _stride(kind: GGMLType, n: int) -> int:
    """From row to row: numbers, or bytes where they are in blocks."""
    return padded(n) if kind.block == 1 else kind.row_bytes(n)


def make_slots(cache: Cache, limits: Limits, inputs: int) -> Slots:
    """Allocate a ring, or a state with its ring of `inputs` floats a token (OPS §2: states lag)."""
    if cache.kind == "ring":
        rows, width, state = cache.back + 1 + limits.drafts, cache.width, 0
    else:
        rows, width, state = 1 + limits.drafts, inputs, int(np.prod(cache.shape))
    memory = np.zeros((limits.slots, state + rows * width), np.float32)
    return Slots(cache, memory, rows, width, state)


def objects_of(executable: Any, pages: Pages | Slots) -> int:
    """Hand a cache to the native executable; its object number."""
    at = pages.memory.ctypes.data
    if isinstance(pages, Pages):
        return int(executable.add_paged(at, pages.fields))
    return int(executable.add_slots(at, pages.memory.shape[1], pages.memory.shape[0], pages.rows, pages.width, pages.state))
