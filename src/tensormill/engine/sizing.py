"""How large the caches are: pages for each lifetime, from how many sequences of how many tokens are to fit, and in what memory.

All sequences get a whole context if there is room for that; else they share what there is, but one of them always fits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tensormill.config import in_words
from tensormill.errors import RequestError
from tensormill.program import Cache, Limits, Program
from tensormill.program.kv import KVType, page_bytes


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an engine makes room for: `sequences` at once, each of up to `context` tokens; `tokens` of all of them together."""

    sequences: int = 1
    context: int = 8192
    tokens: int = 0  # 0: as many as fit, up to a context for each
    chunk: int = 512
    rows: int = 1
    drafts: int = 0
    memory: int | None = None  # bytes for all caches; None: no bound
    free: int | None = None  # bytes for all that is allocated
    weights: int = 0  # bytes of it that are weights


def limits(program: Program, sizes: Sizes, kv_type: KVType) -> Limits:
    """Limits for which a backend plans its memory; RequestError with the numbers where the caches cannot fit."""
    page = max([Limits().page, *(c.ratio for c in program.caches)])
    slots = sizes.sequences + 1

    def needed(whole: int) -> int:
        return cache_bytes(program, _pages(program, sizes, page, whole), page, kv_type, slots, sizes.drafts)

    least = _whole(sizes, max(sizes.tokens, sizes.context), page)
    most = least if sizes.tokens else _whole(sizes, sizes.context * sizes.sequences, page)
    if sizes.memory is None:
        whole = most
    elif needed(least) > sizes.memory:
        raise _too_large(sizes, needed, least, page, kv_type)
    else:
        whole = least - 1 + bisect_right(range(least, most + 1), sizes.memory, key=needed)
    return Limits(
        tokens=sizes.chunk,
        sequences=sizes.sequences,
        rows=max(sizes.rows, sizes.sequences * (1 + sizes.drafts)),
        drafts=sizes.drafts,
        pages=_pages(program, sizes, page, whole),
        slots=slots,
        page=page,
        kv_type=kv_type,
        memory=sizes.free,
    )


def _whole(sizes: Sizes, tokens: int, page: int) -> int:
    return -(-tokens // page) + sizes.sequences


def _pages(program: Program, sizes: Sizes, page: int, whole: int) -> dict[int, int]:
    """Pages by lifetime, scratch included.

    A window's pages must cover, for every sequence, the window and the step in flight; as much again lets prefixes be resumed.
    """
    pages = {0: whole + 1}
    for window in {c.window for c in program.caches if c.kind == "paged" and c.window}:
        one = -(-(window + sizes.chunk + sizes.drafts) // page) + 2
        pages[window] = min(whole, 2 * one * sizes.sequences) + 1
    return pages


def cache_bytes(program: Program, pages: dict[int, int], page: int, kv_type: KVType, slots: int, drafts: int) -> int:
    """Bytes of all caches of a program."""
    paged = sum(pages[c.window] * page_bytes(c, kv_type, page) for c in program.caches if c.kind == "paged")
    return paged + sum(slots * _slot_bytes(c, drafts) for c in program.caches)


def _slot_bytes(cache: Cache, drafts: int) -> int:
    if cache.kind == "ring":
        return 4 * cache.width * (cache.back + 1 + drafts)
    return 4 * prod(cache.shape) if cache.kind == "state" else 0


def _too_large(sizes: Sizes, needed: Callable[[int], int], least: int, page: int, kv_type: KVType) -> RequestError:
    assert sizes.memory is not None
    if sizes.free is not None and sizes.weights >= sizes.free:
        return RequestError(
            f"the weights take {in_words(sizes.weights)}, and {in_words(sizes.free)} of memory are free: choose a smaller "
            "model, or end other programs"
        )
    beside = f" beside weights of {in_words(sizes.weights)}" if sizes.weights else ""
    fits = bisect_right(range(sizes.sequences + 1, least), sizes.memory, key=needed) * page
    less_each = {"q8_0": "q4_0", "q4_0": ""}.get(kv_type, "q8_0 or q4_0")
    smaller = f", keep them smaller (--kv-type {less_each})" if less_each else ""
    less = f"lower --ctx to {fits}" if fits else "lower --sequences"
    if sizes.tokens > sizes.context:
        less = f"lower --kv-tokens to {fits}" if fits else less
    return RequestError(
        f"keys and values of {max(sizes.tokens, sizes.context)} tokens as {kv_type} take {in_words(needed(least))}, "
        f"and there is room for {in_words(sizes.memory)}{beside}: {less}{smaller}, or give them more with --kv-memory"
    )


def is_stateful(program: Program) -> bool:
    """Whether a sequence has rings or recurrent states, which cannot rewind."""
    return any(c.kind != "paged" for c in program.caches)
