"""Attention of the CPU backend: every source, style and bias against the reference; one set of bits however it is fed.

Pages are scattered over NaN; a decode over a long past is split over threads and must not show it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ops.cpu_driver import OneOp, normal
from tensormill.backends.cpu import compile
from tensormill.program import Run, Selected, build_step


def paged(heads: int, groups: int, k: int, v: int, **attrs: object):
    """A body that takes q, k, v out of x, stores and attends."""

    def body(g, w, x):
        a, b = heads * k, heads * k + groups * k
        q, key, value = g.heads(x[:, 0:a], heads), g.heads(x[:, a:b], groups), g.heads(x[:, b : b + groups * v], groups)
        style, window = attrs.get("style", "slide"), attrs.get("window", 0)
        cache = g.paged("kv", k=(groups, k), v=(groups, v), window=window, style=style)
        g.kv_write(cache, key, value)
        rest = {n: a for n, a in attrs.items() if n not in ("style", "window", "sinks")}
        return g.attention(q, [cache], scale=k**-0.5, sinks=w.sinks if attrs.get("sinks") else None, **rest)

    return body


def width(heads: int, groups: int, k: int, v: int) -> int:
    return heads * k + groups * (k + v)


@pytest.mark.parametrize(
    "shape", [(1, 1, 8, 8), (4, 4, 20, 20), (6, 2, 64, 64), (7, 1, 33, 18), (18, 2, 16, 48), (70, 1, 16, 16)]
)
@pytest.mark.parametrize("page", [8, 64])
def test_heads_that_share_keys(shape: tuple[int, int, int, int], page: int) -> None:
    one = OneOp(normal(90, width(*shape)), paged(*shape), page=page)
    one.check(70, 1, 19)


@pytest.mark.parametrize(
    "attrs",
    [
        {"window": 10},
        {"window": 12, "style": "chunk"},
        {"window": 9, "style": "centred"},
        {"softcap": 1.5},
        {"alibi": 8.0},
        {"sinks": True},
        {"sinks": True, "window": 5, "softcap": 2.0},
    ],
    ids=str,
)
def test_windows_caps_and_sinks(attrs: dict[str, object]) -> None:
    shape = (6, 2, 16, 16)
    OneOp(normal(60, width(*shape)), paged(*shape, **attrs), sinks=normal(6)).check(37, 2, 21)


def test_tokens_that_see_ahead() -> None:
    shape = (4, 2, 16, 16)
    one = OneOp(normal(30, width(*shape)), paged(*shape, window=11))
    step = one.step([30])
    until = step.until.copy()
    until[6:15] = 14  # an image of nine rows
    one.check(step=replace(step, until=until))


@pytest.mark.parametrize("v_dim", [0, 16, 24])
def test_keys_that_are_values(v_dim: int) -> None:
    def body(g, w, x):
        cache = g.paged("kv", k=(1, 40))
        g.kv_write(cache, g.heads(x[:, 200:240], 1))
        return g.attention(g.heads(x[:, 0:200], 5), [cache], scale=0.2, v_dim=v_dim)

    OneOp(normal(21, 240), body).check(13, 8)


@pytest.mark.parametrize("attrs", [{}, {"alibi": 8.0}, {"style": "centred", "window": 6}, {"buckets": 16}], ids=str)
def test_own_rows_of_an_encoder(attrs: dict[str, object]) -> None:
    def body(g, w, x):
        q, k, v = (g.heads(x[:, i * 36 : i * 36 + 36], 3) for i in range(3))
        bias = g.weight(w.bias.recipe) if "buckets" in attrs else None
        return g.attention(q, [(k, v)], scale=0.3, bias=bias, **attrs)

    one = OneOp(normal(150, 108), body, bias=normal(16, 3))
    step = one.step([140, 10])
    until = np.concatenate([np.full(140, 139), np.full(10, 9)]).astype(np.int32)
    one.check(step=replace(step, until=until))


def test_two_sources_and_a_selection() -> None:
    def body(g, w, x):
        q, k, c = g.heads(x[:, 0:64], 4), g.heads(x[:, 64:80], 1), g.heads(x[:, 80:96], 1)
        raw, comp = g.paged("raw", k=(1, 16), window=8), g.paged("comp", k=(1, 16), ratio=4)
        keys = g.paged("keys", k=(1, 16), ratio=4)
        g.kv_write(raw, k)
        done = g.tail(g.flat(c), g.ring("r", 16, 3), rows=4)
        entry = g.heads(g.sum(done, 1), 1)
        g.kv_write(comp, entry, rows=4)
        g.kv_write(keys, entry, rows=4)
        ids = g.indexer(q, x[:, 0:4], keys, k=3)
        return g.attention(q, [raw, Selected(comp, ids)], sinks=w.sinks)

    OneOp(normal(50, 96), body, sinks=normal(4)).check(31, 19)


@pytest.mark.parametrize("shape", [(3, 1, 16, 16), (9, 3, 64, 64), (8, 8, 32, 32), (2, 1, 128, 128)])
@pytest.mark.parametrize("attrs", [{}, {"window": 600}], ids=str)
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_a_decode_over_a_long_past_gives_the_bits_of_a_prefill(
    shape: tuple[int, int, int, int], attrs: dict[str, object], kv_type: str
) -> None:
    n, tables = 900, 16
    one = OneOp(normal(n, width(*shape)), paged(*shape, **attrs), page=64)
    limits = replace(one.limits, kv_type=kv_type)
    pages = dict.fromkeys(limits.pages, np.random.default_rng(3).permutation(np.arange(1, 80))[:tables].tolist())

    def feed(cuts: list[int], threads: int) -> np.ndarray:
        made = compile(one.program, one.source, limits, threads=threads)
        made.poison()
        rows = []
        for a, b in zip([0, *cuts], [*cuts, n], strict=True):
            run = Run(np.arange(a, b), a, pages=pages, slot=1, want=range(b - a))
            rows.append(np.array(made.run(build_step([run]))["out"]))
        return np.concatenate(rows)

    whole = feed([], 1)
    for cuts, threads in (([], 2), ([700, *range(701, 706), 710, 896], 3), ([64, 65, 513, 512 + 64, 899], 2)):
        np.testing.assert_array_equal(feed(sorted(cuts), threads).view(np.int32), whole.view(np.int32))
    if kv_type == "f32":
        step = one.step([n])
        expected = one.reference(replace(step, pages={w: np.array([p], np.int32) for w, p in pages.items()}))
        np.testing.assert_allclose(whole, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
