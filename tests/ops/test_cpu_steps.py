"""Tiny models on the CPU backend, fed in every way a scheduler may: the reference's logits, and one set of bits.

Whole, one by one, ragged steps of several sequences on scattered NaN pages, rejected drafts, forks and snapshots.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.cpu_driver import CPUDriver
from ops.driver import PAGE, Feed, Track
from ops.test_reference_steps import LENGTH, MODELS, texts, truth

calm = settings(derandomize=True, max_examples=6, deadline=None, database=None)


@cache
def bits(name: str, tokens: tuple[int, ...]) -> np.ndarray:
    """Logits of one step with all tokens."""
    d = CPUDriver(MODELS[name]())
    t = d.track()
    d.feed(Feed(t, tokens))
    return np.stack([t.logits[i] for i in range(len(tokens))])


def same(name: str, tokens: tuple[int, ...], track: Track) -> None:
    got = np.stack([track.logits[i] for i in range(track.past)])
    np.testing.assert_array_equal(got.view(np.int32), bits(name, tokens)[: track.past].view(np.int32))


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_agrees(name: str) -> None:
    for tokens in texts(name, 2):
        expected = truth(name, tokens)
        np.testing.assert_allclose(bits(name, tokens), expected, rtol=0, atol=1e-5 * np.ptp(expected))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_one_by_one_with_any_number_of_threads(name: str, threads: int) -> None:
    (tokens,) = texts(name, 1)
    d = CPUDriver(MODELS[name](), threads=threads)
    t = d.track()
    for token in tokens:
        d.feed(Feed(t, [token]))
        d.drop_window(t)
    same(name, tokens, t)


@pytest.mark.parametrize("name", MODELS)
@calm
@given(data=st.data())
def test_ragged_steps_of_interleaved_sequences(name: str, data: st.DataObject) -> None:
    d = CPUDriver(MODELS[name](), seed=data.draw(st.integers(0, 99)))
    sequences = [(tokens, d.track()) for tokens in texts(name, 3)]
    while live := [(tokens, t) for tokens, t in sequences if t.past < LENGTH]:
        sizes = data.draw(st.lists(st.integers(0, 11), min_size=len(live), max_size=len(live)).filter(any))
        d.feed(*(Feed(t, tokens[t.past : t.past + n]) for n, (tokens, t) in zip(sizes, live, strict=True) if n))
        for _tokens, t in live:
            d.drop_window(t)
    for tokens, t in sequences:
        same(name, tokens, t)


@pytest.mark.parametrize("name", MODELS)
@calm
@given(data=st.data())
def test_rejected_drafts_leave_no_trace(name: str, data: st.DataObject) -> None:
    d = CPUDriver(MODELS[name](), drafts=3, seed=1)
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
        same(name, tokens, t)


@pytest.mark.parametrize("name", MODELS)
@calm
@given(borders=st.integers(1, 3), extra=st.integers(0, PAGE - 1), chunk=st.integers(1, 9))
def test_a_fork_equals_a_cold_run(name: str, borders: int, extra: int, chunk: int) -> None:
    one, two = texts(name, 2)
    at = borders * PAGE + extra
    d = CPUDriver(MODELS[name](), seed=2)
    t = d.track()
    d.feed(Feed(t, one[:at]))
    fork = d.fork(t)
    mixed = one[:at] + two[at:]
    for i in range(at, LENGTH, chunk):
        d.feed(Feed(t, one[i : i + chunk]), Feed(fork, mixed[i : i + chunk]))
    same(name, one, t)
    same(name, mixed, fork)


@pytest.mark.parametrize("name", ["llama", "qwen35", "mamba", "deepseek4"])
def test_a_snapshot_outlives_its_slot(name: str) -> None:
    one, two = texts(name, 2)
    d = CPUDriver(MODELS[name](), seed=3)
    t = d.track()
    d.feed(Feed(t, one[: 2 * PAGE]))
    kept = d.executable.snapshot(t.slot)
    other = d.track()
    other.slot = t.slot
    d.feed(Feed(other, two))
    d.executable.restore(t.slot, kept)
    d.feed(Feed(t, one[2 * PAGE :]))
    same(name, one, t)
    same(name, two, other)


@pytest.mark.parametrize("name", ["llama", "llama-slide", "deepseek4"])
def test_half_precision_pages_too_give_one_set_of_bits(name: str) -> None:
    (tokens,) = texts(name, 1)
    whole = CPUDriver(MODELS[name](), kv_type="f16")
    t = whole.track()
    whole.feed(Feed(t, tokens))
    d = CPUDriver(MODELS[name](), kv_type="f16", seed=5)
    u = d.track()
    for i in range(0, LENGTH, 5):
        d.feed(Feed(u, tokens[i : i + 5]))
    for i in range(LENGTH):
        np.testing.assert_array_equal(t.logits[i].view(np.int32), u.logits[i].view(np.int32))
    expected = truth(name, tokens)
    np.testing.assert_allclose(t.logits[LENGTH - 1], expected[-1], rtol=0, atol=5e-3 * np.ptp(expected))
