"""Tails, recurrences and routing of the reference against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from tensormill.backends.reference.ending import pool
from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.recurrent import delta_rule, ssm_scan, tail
from tensormill.backends.reference.routing import route
from tensormill.backends.reference.stores import RingStore, StateStore
from tensormill.program import Cache, Limits, Run, build_step

LIMITS = Limits(slots=4, drafts=2)
draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def test_tail_reads_ring_and_step_and_pads() -> None:
    ring = RingStore(LIMITS, 2, 3, np.float32)
    line = normal(2, 12, 1, 2)
    one = Frame(build_step([Run(range(5), slot=2), Run(range(2), slot=1)], ratios=[4]))
    first = np.concatenate([line[0, :5], line[1, :2]])
    tail(one, first, ring, rows="T", pad=9.0)
    two = Frame(build_step([Run(range(7), past=5, slot=2), Run(range(3), past=2, slot=1)], ratios=[4]))
    every = tail(two, np.concatenate([line[0, 5:12], line[1, 2:5]]), ring, rows="T", pad=9.0)
    where = [(0, i) for i in range(5, 12)] + [(1, i) for i in range(2, 5)]
    for row, (s, i) in enumerate(where):
        for back in range(4):
            expected = line[s, i - back] if i >= back else np.full((1, 2), 9.0)
            np.testing.assert_array_equal(every[row, 3 - back], expected)


def test_tail_of_completed_entries() -> None:
    ring = RingStore(LIMITS, 2, 3, np.float32)
    line = normal(12, 2)
    tail(Frame(build_step([Run(range(2), slot=1)])), line[:2], ring, rows="T", pad=0.0)
    step = build_step([Run(range(10), past=2, slot=1)], ratios=[4])
    got = tail(Frame(step), line[2:], ring, rows="C4", pad=0.0)
    np.testing.assert_array_equal(got, line.reshape(3, 4, 2))


def test_ssm_scan_of_mamba_2_and_of_mamba_1() -> None:
    for heads, width, groups, a in ((4, 3, 2, -np.abs(normal(4, 1))), (6, 1, 1, -np.abs(normal(6, 5)))):
        store = StateStore(
            Cache("s", "state", shape=(heads, width, 5)), LIMITS, heads * width + heads + 2 * groups * 5, np.float32
        )
        x, dt, b, c = normal(7, heads, width), np.abs(normal(7, heads)), normal(7, groups, 5), normal(7, groups, 5)
        got = ssm_scan(Frame(build_step([Run(range(7), slot=1)])), x, dt, a, b, c, store)
        h = np.zeros((heads, width, 5))
        for t in range(7):
            for j in range(heads):
                g = j // (heads // groups)
                for i in range(width):
                    for n in range(5):
                        decay = np.exp(dt[t, j] * a[j, n % a.shape[1]])
                        h[j, i, n] = decay * h[j, i, n] + dt[t, j] * x[t, j, i] * b[t, g, n]
                    assert got[t, j, i] == pytest.approx(h[j, i] @ c[t, g], rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(store.states[1], h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["tile", "repeat"])
@pytest.mark.parametrize("channels", [1, 3])
def test_delta_rule(how: str, channels: int) -> None:
    heads, groups, width, wide = 4, 2, 3, 5
    size = 2 * groups * width + heads * wide + heads + heads * channels
    store = StateStore(Cache("s", "state", shape=(heads, width, wide)), LIMITS, size, np.float32)
    q, k, v, beta, g = (
        normal(6, groups, width),
        normal(6, groups, width),
        normal(6, heads, wide),
        normal(6, heads),
        normal(6, heads, channels),
    )
    got = delta_rule(Frame(build_step([Run(range(6), slot=3)])), q, k, v, beta, -np.abs(g), store, map=how)
    for j in range(heads):
        s = np.zeros((width, wide))
        key = j % groups if how == "tile" else j // (heads // groups)
        for t in range(6):
            s = np.diag(np.exp(-np.abs(np.broadcast_to(g[t, j], width)))) @ s
            d = beta[t, j] * (v[t, j] - s.T @ k[t, key])
            s = s + np.outer(k[t, key], d)
            np.testing.assert_allclose(got[t, j], s.T @ q[t, key], rtol=1e-3, atol=1e-4)


def test_a_state_lags_behind_drafts() -> None:
    """Folded to the last sure token; accepted drafts are folded when the next step says where past is."""
    store = StateStore(Cache("s", "state", shape=(1, 1, 1)), LIMITS, 4, np.float64)
    ones = np.ones((9, 1, 1))

    def step(n: int, **run: int) -> np.ndarray:
        frame = Frame(build_step([Run(range(n), slot=1, **run)]))
        return ssm_scan(frame, ones[:n], ones[:n, 0], np.zeros((1, 1)), ones[:n], ones[:n], store)  # a counter

    assert step(4, sure=2)[:, 0, 0].tolist() == [1, 2, 3, 4] and store.states[1].item() == 2
    assert step(3, past=3, base=2, sure=1)[:, 0, 0].tolist() == [4, 5, 6] and store.states[1].item() == 4
    assert step(1, past=4, base=4)[:, 0, 0].tolist() == [5] and store.states[1].item() == 5


@pytest.mark.parametrize("norm", ["sum", "softmax", "none"])
@pytest.mark.parametrize(("groups", "keep"), [(1, 1), (4, 2)])
def test_route(norm: str, groups: int, keep: int) -> None:
    score, bias = np.abs(normal(20, 12)).round(1), normal(12).round(1)  # rounded: with ties
    ids, w = route(score, bias, None, k=3, groups=groups, keep=keep, norm=norm, eps=1e-15, scale=1.5)
    for t in range(20):
        biased = score[t] + bias
        size = 12 // groups
        rank = [sum(sorted(biased[g * size : (g + 1) * size])[-2:]) for g in range(groups)]
        kept = sorted(range(groups), key=lambda g: (-rank[g], g))[: keep if groups > 1 else 1]
        experts = sorted((e for e in range(12) if e // size in kept), key=lambda e: (-biased[e], e))[:3]
        assert ids[t].tolist() == experts
        raw = score[t, experts].astype(float)
        expected = {"sum": raw / (raw.sum() + 1e-15), "softmax": np.exp(raw) / np.exp(raw).sum(), "none": raw}[norm]
        np.testing.assert_allclose(w[t], 1.5 * expected, rtol=1e-5)


def test_route_by_given_ids_and_its_floor() -> None:
    score, ids = np.zeros((2, 5), np.float32), np.array([[4, 0], [1, 2]], np.int32)
    score[0, 4] = 3
    chosen, w = route(score, None, ids, k=0, groups=1, keep=1, norm="sum", eps=6.1e-5, scale=1.0)
    assert chosen is ids and w.tolist() == [[1, 0], [0, 0]]


def test_pool() -> None:
    frame, x = Frame(build_step([Run(range(3)), Run(range(2))])), normal(5, 4)
    np.testing.assert_allclose(pool(frame, x, kind="mean"), [x[:3].sum(0) / 3, x[3:].sum(0) / 2], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(pool(frame, x, kind="cls"), x[[0, 3]])
    np.testing.assert_array_equal(pool(frame, x, kind="last"), x[[2, 4]])
