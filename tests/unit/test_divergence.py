"""KL divergence, top-1 agreement and perplexity against their definitions, and how a text is cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.errors import RequestError
from tensormill.evals import Divergence, Perplexity, cut, log_softmax

calm = settings(derandomize=True, max_examples=25, deadline=None, database=None)


def rows(n: int, v: int, seed: int, spread: float = 2.0) -> np.ndarray:
    return (spread * np.random.default_rng(seed).standard_normal((n, v))).astype(np.float32)


def found(base: np.ndarray, other: np.ndarray, targets: np.ndarray | None = None, part: int = 10**9) -> Divergence:
    d = Divergence()
    for at in range(0, len(base), part):
        d.add(base[at : at + part], other[at : at + part], None if targets is None else targets[at : at + part])
    return d


def slow_kl(base: np.ndarray, other: np.ndarray) -> float:
    p, q = ([float(x) for x in row] for row in (base, other))
    zp, zq = (math.log(math.fsum(math.exp(x) for x in row)) for row in (p, q))
    return math.fsum(math.exp(a - zp) * ((a - zp) - (b - zq)) for a, b in zip(p, q, strict=True) if a - zp > -16)


@calm
@given(seed=st.integers(0, 999), v=st.integers(2, 50), part=st.integers(1, 9))
def test_kl_is_its_definition_however_the_rows_come(seed: int, v: int, part: int) -> None:
    base, other = rows(12, v, seed), rows(12, v, seed + 1)
    d = found(base, other, part=part)
    np.testing.assert_allclose(d.kl, [slow_kl(*pair) for pair in zip(base, other, strict=True)], rtol=1e-9, atol=1e-12)
    assert d.same_top.tolist() == (base.argmax(1) == other.argmax(1)).tolist()
    assert (d.kl >= -1e-9).all()


def test_kl_of_two_coins() -> None:
    base, other = np.log([[0.5, 0.5]]).astype(np.float32), np.log([[0.9, 0.1]]).astype(np.float32)
    assert found(base, other).kl[0] == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1), rel=1e-6)


def test_a_shift_of_all_logits_changes_nothing_and_large_ones_do_not_overflow() -> None:
    base = rows(5, 30, 1)
    assert found(base, base + np.float32(4096)).kl == pytest.approx(np.zeros(5), abs=1e-6)
    assert np.isfinite(found(base * 500, base[::-1] * 500).kl).all()


def test_tokens_that_the_base_hardly_knows_do_not_count() -> None:
    base, other = np.array([[0.0, 0.0, -17.0]]), np.array([[0.0, 0.0, 3.0]])
    with_them = np.exp(log_softmax(base)) * (log_softmax(base) - log_softmax(other))
    assert found(base, other).kl[0] == pytest.approx(with_them[0, :2].sum(), rel=1e-12)
    assert with_them[0, 2] != 0


def test_summary_is_what_its_names_say() -> None:
    base, other = rows(400, 40, 3), rows(400, 40, 3) + rows(400, 40, 4, 0.3)
    targets = np.random.default_rng(5).integers(0, 40, 400)
    s = found(base, other, targets, part=7).summary()
    kl = np.array([slow_kl(*pair) for pair in zip(base, other, strict=True)])
    p, q = (np.exp(log_softmax(x)[np.arange(400), targets]) for x in (base, other))
    assert s["positions"] == 400
    assert s["kl"] == pytest.approx([kl.mean(), kl.std(ddof=1) / 20], rel=1e-6)
    assert (s["kl_min"], s["kl_max"]) == pytest.approx((kl.min(), kl.max()), rel=1e-6)
    assert s["kl_percentiles"]["50"] == pytest.approx(np.median(kl), rel=1e-6)
    assert s["same_top"][0] == (base.argmax(1) == other.argmax(1)).mean()
    assert s["ppl"][0] == pytest.approx(math.exp(-np.log(q).mean()))
    assert s["ppl_base"][0] == pytest.approx(math.exp(-np.log(p).mean()))
    assert s["ppl_ratio"][0] == pytest.approx(s["ppl"][0] / s["ppl_base"][0])
    assert s["ln_ppl_ratio"] == pytest.approx([np.log(p / q).mean(), np.log(p / q).std(ddof=1) / 20])
    assert s["p_change"][0] == pytest.approx((q - p).mean())
    assert s["p_change_rms"][0] == pytest.approx(np.sqrt(((q - p) ** 2).mean()))
    assert s["correlation"] == pytest.approx(np.corrcoef(np.log(p), np.log(q))[0, 1])
    assert list(s["kl_percentiles"].values()) == sorted(s["kl_percentiles"].values(), reverse=True)


def test_equal_logits_diverge_by_nothing() -> None:
    base = rows(9, 11, 8)
    s = found(base, base, np.arange(9)).summary()
    assert s["kl"] == [0, 0] and s["same_top"] == [1, 0] and s["ppl_ratio"][0] == 1 and s["p_change_rms"] == [0, 0]


def test_perplexity_of_a_die_is_its_faces() -> None:
    p = Perplexity()
    for _ in range(3):
        p.add(np.zeros((10, 6), np.float32), np.arange(10) % 6)
    assert (p.value.mean, p.value.error) == pytest.approx((6, 0))
    assert len(p.losses) == 30


def test_chunks_are_whole_begin_with_bos_and_score_their_second_half() -> None:
    chunks = cut(range(100, 130), 8, bos=1)
    assert [c.tokens for c in chunks] == [[1, *range(101 + 8 * i, 108 + 8 * i)] for i in range(3)]
    assert all(c.first == 4 and c.targets.tolist() == c.tokens[5:] for c in chunks)
    assert len(chunks[0].targets) == 8 - 1 - 8 // 2
    assert cut(range(30), 8, most=2)[1].tokens == list(range(8, 16))


@pytest.mark.parametrize(("count", "context", "words"), [(7, 8, "7 tokens, and one chunk needs 8"), (9, 3, "too short")])
def test_too_little_text_is_refused(count: int, context: int, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        cut(range(count), context)
