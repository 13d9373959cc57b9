"""The same tokens give the same logits however they are fed: whole, in chunks, one by one, together, with drafts.

Plans are drawn by hypothesis: scattered pages over NaN, rejected drafts, forks from snapshots, windows that give pages back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops import sketches
from ops.driver import PAGE, Driver, Feed, Track, whole
from ops.tiny import Model

LENGTH = 37
MODELS: dict[str, Callable[[], Model]] = {
    "llama": cache(sketches.llama),
    "llama-slide": cache(lambda: sketches.llama(10)),
    "llama-chunk": cache(lambda: sketches.llama(12, "chunk")),
    "llama-centred": cache(lambda: sketches.llama(12, "centred")),
    "qwen35": cache(sketches.qwen35),
    "mamba": cache(sketches.mamba),
    "deepseek4": cache(sketches.deepseek4),
}
calm = settings(derandomize=True, max_examples=12, deadline=None, database=None)


@cache
def truth(name: str, tokens: tuple[int, ...]) -> np.ndarray:
    return whole(MODELS[name](), tokens)


def texts(name: str, count: int) -> list[tuple[int, ...]]:
    draw = np.random.default_rng(5)
    return [tuple(draw.integers(0, MODELS[name]().vocabulary, LENGTH).tolist()) for _ in range(count)]


def compare(name: str, tokens: tuple[int, ...], track: Track) -> None:
    expected = truth(name, tokens)[: track.past]
    got = np.stack([track.logits[i] for i in range(track.past)])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.ptp(expected))


@pytest.mark.parametrize("name", MODELS)
def test_one_by_one(name: str) -> None:
    (tokens,) = texts(name, 1)
    d = Driver(MODELS[name]())
    t = d.track()
    for token in tokens:
        d.feed(Feed(t, [token]))
        d.drop_window(t)
    compare(name, tokens, t)


@pytest.mark.parametrize("name", MODELS)
@calm
@given(data=st.data())
def test_ragged_steps_of_interleaved_sequences(name: str, data: st.DataObject) -> None:
    d = Driver(MODELS[name](), seed=data.draw(st.integers(0, 99)))
    sequences = [(tokens, d.track()) for tokens in texts(name, 3)]
    while live := [(tokens, t) for tokens, t in sequences if t.past < LENGTH]:
        sizes = data.draw(st.lists(st.integers(0, 11), min_size=len(live), max_size=len(live)).filter(any))
        d.feed(*(Feed(t, tokens[t.past : t.past + n]) for n, (tokens, t) in zip(sizes, live, strict=True) if n))
        for _tokens, t in live:
            d.drop_window(t)
    for tokens, t in sequences:
        compare(name, tokens, t)


@pytest.mark.parametrize("name", MODELS)
@calm
@given(data=st.data())
def test_rejected_drafts_leave_no_trace(name: str, data: st.DataObject) -> None:
    d = Driver(MODELS[name](), drafts=3, seed=1)
    sequences = [(tokens, d.track()) for tokens in texts(name, 2)]
    while live := [(tokens, t) for tokens, t in sequences if t.past < LENGTH]:
        feeds, accepted = [], []
        for tokens, t in live:
            sure = data.draw(st.integers(1, 6))
            right, wrong = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
            good = list(tokens[t.past : t.past + sure + right])
            sure = min(sure, len(good))
            bad = [(token + 7) % 31 for token in tokens[t.past + len(good) :][:wrong]][: 3 - (len(good) - sure)]
            feeds.append(Feed(t, good + bad, sure))
            accepted.append(len(good) - sure)
        d.feed(*feeds)
        for f, n in zip(feeds, accepted, strict=True):
            d.accept(f.track, n)
            d.drop_window(f.track)
    for tokens, t in sequences:
        compare(name, tokens, t)


@pytest.mark.parametrize("name", MODELS)
@calm
@given(borders=st.integers(1, 3), extra=st.integers(0, PAGE - 1), chunk=st.integers(1, 9))
def test_a_fork_equals_a_cold_run(name: str, borders: int, extra: int, chunk: int) -> None:
    """At a page border it is the resume of a prefix; in a page, n-best: the last page is copied."""
    one, two = texts(name, 2)
    at = borders * PAGE + extra
    d = Driver(MODELS[name](), seed=2)
    t = d.track()
    d.feed(Feed(t, one[:at]))
    fork = d.fork(t)
    mixed = one[:at] + two[at:]
    for i in range(at, LENGTH, chunk):  # the fork and its source write in turn, or together
        d.feed(Feed(t, one[i : i + chunk]), Feed(fork, mixed[i : i + chunk]))
    compare(name, one, t)
    compare(name, mixed, fork)


@pytest.mark.parametrize("name", ["llama", "qwen35", "mamba", "deepseek4"])
def test_a_snapshot_outlives_its_slot(name: str) -> None:
    """A slot that another sequence took meanwhile is restored; pages stay."""
    one, two = texts(name, 2)
    d = Driver(MODELS[name](), seed=3)
    t = d.track()
    d.feed(Feed(t, one[: 2 * PAGE]))
    kept = d.executable.snapshot(t.slot)
    other = d.track()
    other.slot = t.slot
    d.feed(Feed(other, two))
    d.executable.restore(t.slot, kept)
    d.feed(Feed(t, one[2 * PAGE :]))
    compare(name, one, t)
    compare(name, two, other)
