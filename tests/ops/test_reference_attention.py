"""Attention and the indexer of the reference against plain loops over every row, on scattered pages over NaN."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.backends.reference.attention import attention, bucket, kv_write, slopes
from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.routing import indexer
from tensormill.backends.reference.stores import PagedStore
from tensormill.program import Cache, Limits, Run, Source, build_step

PAGE, HEADS, GROUPS, WIDTH = 4, 4, 2, 6
calm = settings(derandomize=True, max_examples=40, deadline=None, database=None)
NAMED = {"scale": 0.4, "softcap": 0.0, "v_dim": 0, "alibi": 0.0, "buckets": 0, "style": "causal", "window": 0}


class Scene:
    """Two sequences, the first with a past, whose rows lie on scattered pages; everything else is NaN."""

    def __init__(self, seed: int, *, ratio: int = 1, shared: bool = False, **how: Any) -> None:
        self.draw = np.random.default_rng(seed)
        window = how.get("window", 0)
        v = None if shared else (GROUPS, 5)
        self.cache = Cache("kv", "paged", (GROUPS, WIDTH), v, ratio=ratio, **how)
        self.store = PagedStore(self.cache, Limits(pages={window: 30}, page=PAGE, kv_type="f32"), np.float32)
        pages = self.draw.permutation(np.arange(1, 30)).reshape(-1, 1)[:28].reshape(2, 14).tolist()
        past, new = int(self.draw.integers(1, 30)), self.draw.integers(1, 9, 2)
        table = [{window: pages[0]}, {window: pages[1]}]
        self.k = self.normal(2, 60 // ratio, GROUPS, WIDTH)
        self.v = self.k if shared else self.normal(2, 60 // ratio, GROUPS, 5)
        first = Frame(build_step([Run(range(past), pages=table[0])], ratios=[ratio]))
        lengths = (past + int(new[0]), int(new[1]))
        until = [min(past + 2, lengths[0] - 1)] * min(3, int(new[0]))  # an image span of up to three tokens leads the step
        until += list(range(past + len(until), lengths[0]))
        runs = [Run(range(int(new[0])), past, pages=table[0], until=until), Run(range(lengths[1]), pages=table[1])]
        self.frame = Frame(build_step(runs, ratios=[ratio]))
        symbol = f"C{ratio}" if ratio > 1 else "T"
        none = shared
        kv_write(first, self.store, self.k[0, : past // ratio], None if none else self.v[0, : past // ratio], rows=symbol)
        new_k = np.concatenate([self.k[0, past // ratio : lengths[0] // ratio], self.k[1, : lengths[1] // ratio]])
        new_v = np.concatenate([self.v[0, past // ratio : lengths[0] // ratio], self.v[1, : lengths[1] // ratio]])
        kv_write(self.frame, self.store, new_k, None if none else new_v, rows=symbol)
        self.tokens = len(self.frame.step.tokens)

    def normal(self, *shape: int) -> np.ndarray:
        return self.draw.standard_normal(shape).astype(np.float32)

    def each(self) -> Any:
        """(token row, sequence, index, until)."""
        for s, sequence in enumerate(self.frame.sequences):
            for i in range(len(sequence.index)):
                yield sequence.rows.start + i, s, int(sequence.index[i]), int(sequence.until[i])


def sees(cache: Cache, j: int, index: int, until: int) -> bool:
    first, last = j * cache.ratio, j * cache.ratio + cache.ratio - 1
    if last > until:
        return False
    if cache.window == 0:
        return True
    return {
        "slide": index - cache.window < first,
        "chunk": first >= index - index % cache.window and first < index - index % cache.window + cache.window,
        "centred": -cache.window / 2 <= index - first <= cache.window / 2,
    }[cache.style]


def one(
    q: np.ndarray, rows: list[tuple[np.ndarray, np.ndarray, float]], scale: float, cap: float, sink: float | None
) -> np.ndarray:
    """A head's output by the definition: rows of (key, value, added to the score)."""
    logits = []
    for key, _value, extra in rows:
        x = float(np.dot(q.astype(float), key.astype(float))) * scale
        logits.append((cap * math.tanh(x / cap) if cap else x) + extra)
    total = sum(map(math.exp, logits)) + (0 if sink is None else math.exp(sink))
    return sum(math.exp(x) / total * value.astype(float) for x, (_k, value, _e) in zip(logits, rows, strict=True))


@calm
@given(
    seed=st.integers(0, 999), window=st.sampled_from([0, 1, 3, 6]), style=st.sampled_from(["slide", "chunk", "centred"]),
    ratio=st.sampled_from([1, 2, 4]), shared=st.booleans(), cap=st.sampled_from([0.0, 2.0]), sinks=st.booleans(),
    alibi=st.sampled_from([0.0, 8.0]), own=st.booleans(),
)  # fmt: skip
def test_against_every_visible_row(
    seed: int, window: int, style: str, ratio: int, shared: bool, cap: float, sinks: bool, alibi: float, own: bool
) -> None:
    """One paged source of any sort, and perhaps this step's own rows besides."""
    sc = Scene(seed, ratio=ratio, shared=shared, window=window, style=style)
    q = sc.normal(sc.tokens, HEADS, WIDTH)
    own_k, own_v = sc.normal(sc.tokens, GROUPS, WIDTH), sc.normal(sc.tokens, GROUPS, 5)
    sink = sc.normal(HEADS) if sinks else np.full(HEADS, -np.inf)  # a layer with windows may see nothing of ratio 4
    operands = (sc.store, None, None, *((own_k, own_v, None) if own else ()))
    sources = (Source(True), Source(False))[: 2 if own else 1]
    named = NAMED | {"softcap": cap, "alibi": alibi, "v_dim": 5, "sources": sources}
    got = attention(sc.frame, q, sink if sinks else None, None, *operands, **named)
    for t, s, index, until in sc.each():
        for h in range(HEADS):
            g = h // 2
            slope = 2.0 ** (-alibi / 4 * (h + 1)) if alibi else 0.0
            rows = [
                (sc.k[s, j, g], sc.v[s, j, g][:5], -slope * abs(index - j * ratio))
                for j in range(60 // ratio)
                if sees(sc.cache, j, index, until)
            ]
            if own:
                rows += [
                    (own_k[u, g], own_v[u, g], -slope * abs(index - other))
                    for u, r, other, _until in sc.each()
                    if r == s and other <= until
                ]
            expected = one(q[t, h], rows, 0.4, cap, float(sink[h]) if sinks else None) if rows else np.zeros(5)
            np.testing.assert_allclose(got[t, h], expected, atol=2e-5)


@calm
@given(seed=st.integers(0, 999), span=st.sampled_from([1, 2, 3]))
def test_selected_rows_beside_all_rows(seed: int, span: int) -> None:
    sc = Scene(seed, shared=True)
    q = sc.normal(sc.tokens, HEADS, WIDTH)
    ids = np.stack([sc.draw.permutation(np.arange(-1, 9))[:4] for _ in range(sc.tokens)]).astype(np.int32)
    named = NAMED | {"sources": (Source(True), Source(True, True, span))}
    got = attention(sc.frame, q, None, None, sc.store, None, None, sc.store, None, ids, **named)
    for t, s, _index, until in sc.each():
        picked = [i * span + j for i in ids[t] if i >= 0 for j in range(span)]
        for h in range(HEADS):
            seen = [*range(until + 1), *(j for j in picked if j <= until)]  # one softmax: a row in both counts twice
            rows = [(sc.k[s, j, h // 2], sc.k[s, j, h // 2], 0.0) for j in seen]
            np.testing.assert_allclose(got[t, h], one(q[t, h], rows, 0.4, 0.0, None), atol=2e-5)


def test_an_encoder_sees_both_ways_within_its_window_and_buckets() -> None:
    draw = np.random.default_rng(0)
    frame = Frame(build_step([Run(range(7), until=[6] * 7), Run(range(3), until=[2] * 3)]))
    q, k = (draw.standard_normal((10, n, WIDTH)).astype(np.float32) for n in (HEADS, GROUPS))
    bias = draw.standard_normal((8, HEADS)).astype(np.float32)
    named = NAMED | {"style": "centred", "window": 4, "buckets": 8, "sources": (Source(False),)}
    got = attention(frame, q, None, bias, k, None, None, **named)
    for t in range(10):
        s, e = (0, 7) if t < 7 else (7, 10)
        for h in range(HEADS):
            near = [u for u in range(s, e) if abs(t - u) <= 2]
            rows = [(k[u, h // 2], k[u, h // 2], float(bias[(4 if u > t else 0) + abs(u - t), h])) for u in near]
            # of 8 buckets, 4 look back and 4 ahead, 2 of each exact; distance 2 is the first of the logarithmic ones
            np.testing.assert_allclose(got[t, h], one(q[t, h], rows, 0.4, 0.0, None), atol=2e-5)


def test_buckets_and_slopes_of_their_papers() -> None:
    far = np.array([0, 1, -1, 7, -7, 8, -8, 16, -127, 128, -5000])
    assert bucket(far, 32).tolist() == [0, 17, 1, 23, 7, 24, 8, 26, 15, 31, 15]
    np.testing.assert_allclose(slopes(8, 8.0), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(slopes(6, 8.0), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])


@calm
@given(
    seed=st.integers(0, 999),
    k=st.integers(1, 6),
    block=st.sampled_from([1, 2, 3]),
    ratio=st.sampled_from([1, 2]),
    narrow=st.booleans(),
)
def test_indexer_by_sorting_every_row(seed: int, k: int, block: int, ratio: int, narrow: bool) -> None:
    draw = np.random.default_rng(seed)
    cache = Cache("index", "paged", (1, 5), ratio=ratio)
    store = PagedStore(cache, Limits(pages={0: 9}, page=PAGE, kv_type="f32"), np.float32)
    length = int(draw.integers(1, 25))
    frame = Frame(build_step([Run(range(length), pages={0: [3, 7, 2, 8, 5, 1, 4]})], ratios=[ratio]))
    keys = draw.standard_normal((length // ratio, 1, 5)).astype(np.float32).round(0)  # rounded: with ties
    kv_write(frame, store, keys, None, rows=f"C{ratio}" if ratio > 1 else "T")
    q, w = (draw.standard_normal(s).astype(np.float32).round(0) for s in ((length, 3, 5), (length, 3)))
    within = draw.integers(-1, 6, (length, 4)).astype(np.int32) if narrow else None
    got = indexer(frame, q, w, store, within, k=k, block=block, span=2)
    for t in range(length):
        rows = [j for j in range((t + 1) // ratio) if within is None or j // 2 in within[t].tolist()]
        score = {j: sum(float(w[t, h]) * max(float(q[t, h] @ keys[j, 0]), 0) for h in range(3)) for j in rows}
        blocks = {j // block: max(score[i] for i in rows if i // block == j // block) for j in rows}
        if block > 1 and rows:
            blocks[rows[-1] // block] = math.inf
        best = sorted(sorted(blocks, key=lambda b: (-blocks[b], b))[:k])
        assert got[t].tolist() == best + [-1] * (k - len(best))
