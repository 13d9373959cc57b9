"""Typical, XTC, DRY, logit bias and the least length: against their definitions written out slowly."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.bpe_engine import tokenizer
from tensormill.config import SamplingConfig
from tensormill.errors import RequestError
from tensormill.sampling import Sampler
from tensormill.sampling.dry import Dry
from tensormill.sampling.sampler import uniforms
from tensormill.sampling.unusual import typical, without_obvious

OPEN = SamplingConfig(temperature=1, top_k=0, top_p=1, min_p=0, seed=7)
GREEDY = SamplingConfig(temperature=0)


def logits(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def drawn(config: SamplingConfig, row: np.ndarray, draws: int = 400) -> set[int]:
    sampler = Sampler(config, len(row))
    return {sampler.sample(row, position=position) for position in range(draws)}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=40), st.sampled_from([0.1, 0.5, 0.9]))
def test_typical_follows_its_definition(values: list[float], share: float) -> None:
    row = logits(*values)
    p = np.exp(row.astype(np.float64))
    p /= p.sum()
    entropy = -sum(x * math.log(x) for x in p)
    order = sorted(range(len(p)), key=lambda i: (round(abs(-math.log(p[i]) - entropy), 9), i))
    kept: list[int] = []
    while sum(p[kept]) < share - 1e-9:
        kept.append(order[len(kept)])
    found = typical(row, share)
    assert found.tolist() == sorted(found.tolist())
    assert set(kept) <= set(found.tolist()) and len(found) <= len(kept) + 1 + len(p) - len(set(values))


def test_typical_may_leave_out_the_likeliest() -> None:
    row = logits(math.log(0.4), *[math.log(0.06)] * 10)
    assert 0 not in drawn(replace(OPEN, typical_p=0.3), row)
    assert 0 in drawn(OPEN, row)
    assert drawn(replace(OPEN, typical_p=0.3, top_k=1), row) == {0}  # top-k comes first
    assert Sampler(replace(OPEN, typical_p=0.3, temperature=0), 11).sample(row) == 0


def test_xtc() -> None:
    row = np.log(logits(0.4, 0.3, 0.15, 0.1, 0.05))
    assert without_obvious(row, 0.12).tolist() == [2, 3, 4]
    assert without_obvious(row, 0.35).tolist() == [0, 1, 2, 3, 4]  # one alone is no choice
    assert without_obvious(logits(1, 1, 1), 0.1).tolist() == [0]
    assert drawn(replace(OPEN, xtc_probability=1.0, xtc_threshold=0.12), row) == {2, 3, 4}
    half = replace(OPEN, xtc_probability=0.5, xtc_threshold=0.12)
    left_out = [uniforms(7, i)[1] < 0.5 for i in range(400)]
    sampler = Sampler(half, 5)
    assert not [i for i, out in enumerate(left_out) if out and sampler.sample(row, position=i) < 2]
    assert {sampler.sample(row, position=i) for i, out in enumerate(left_out) if not out} == {0, 1, 2, 3, 4}
    assert 150 < sum(left_out) < 250
    assert drawn(replace(half, min_p=0.5), row) == {0, 1}  # min-p comes first


def dry_slowly(tokens: list[int], config: SamplingConfig, breakers: set[int], size: int) -> np.ndarray:
    """For every token and every earlier place of it: how much of what stood before is the end of the sequence."""
    if config.dry_window > 0:
        tokens = tokens[-config.dry_window :]
    longest = [0] * size
    for at in range(1, len(tokens)):
        n = 0
        while n < at and tokens[at - 1 - n] == tokens[-1 - n] and tokens[-1 - n] not in breakers:
            n += 1
        longest[tokens[at]] = max(longest[tokens[at]], n)
    off = [n >= config.dry_allowed_length and t not in breakers for t, n in enumerate(longest)]
    power = [config.dry_multiplier * config.dry_base ** (n - config.dry_allowed_length) for n in longest]
    return np.where(off, power, 0.0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), max_size=30), st.sampled_from([-1, 5, 12]), st.integers(1, 3), st.booleans())
def test_dry_follows_its_definition(tokens: list[int], window: int, allowed: int, broken: bool) -> None:
    config = SamplingConfig(dry_multiplier=0.8, dry_window=window, dry_allowed_length=allowed, dry_breakers=("d",))
    dry = Dry(config, (lambda t: b"abcd"[t : t + 1]) if broken else None)
    dry.accept(tokens)
    row = np.ones(5, np.float32)
    expected = row - dry_slowly(tokens, config, {3} if broken else set(), 5)
    assert np.allclose(dry.apply(row), expected)
    assert row.tolist() == [1] * 5


def test_dry_ends_a_loop() -> None:
    sampler = Sampler(replace(GREEDY, dry_multiplier=1.0), 4)
    said = []
    for _ in range(40):
        said.append(sampler.sample(np.roll(logits(3, 0, 0, 0), (said[-1] + 1) % 3 if said else 0)))  # 0 1 2 0 1 2 …
        sampler.accept(said[-1])
    assert said[:6] == [0, 1, 2, 0, 1, 2]
    assert 3 in said


def test_logit_bias_and_bans() -> None:
    row = logits(3, 2, 1)
    assert Sampler(replace(GREEDY, logit_bias=((2, 2.5),)), 3).sample(row) == 2
    assert Sampler(replace(GREEDY, logit_bias=((0, -math.inf),)), 3).sample(row) == 1
    assert row.tolist() == [3, 2, 1]
    banned = Sampler(replace(GREEDY, logit_bias=tuple((i, -math.inf) for i in range(3))), 3)
    with pytest.raises(RequestError, match="no token"):
        banned.sample(row)
    assert banned.sample(row, allowed=np.array([False, True, True])) == 1  # a grammar that leaves no other wins
    with pytest.raises(RequestError, match="token 3; there are 3"):
        Sampler(replace(GREEDY, logit_bias=((3, 1.0),)), 3)
    for wrong in ((-1, 1.0), (0, math.nan), (0, math.inf)):
        with pytest.raises(RequestError, match="logit-bias"):
            SamplingConfig(logit_bias=(wrong,))


def test_no_end_before_the_least_length() -> None:
    t = tokenizer()
    row = np.zeros(t.n_vocab, np.float32)
    row[[*t.end_ids]] = 5
    row[17] = 1
    sampler = Sampler(replace(GREEDY, min_tokens=2), t.n_vocab, t)
    sampler.begin([1, 2, 3, 4])
    for expected in (False, False, True):
        token = sampler.sample(row)
        assert (token in t.end_ids) is expected and (expected or token == 17)
        sampler.accept(token)


@pytest.mark.parametrize(
    "more", [{}, {"typical_p": 0.9}, {"xtc_probability": 0.5}, {"dry_multiplier": 0.8}, {"logit_bias": ((5, 1.0),)}], ids=str
)
def test_fast(more: dict) -> None:
    """151k tokens with top-k 40, 4096 tokens of history: the aim is 1.5 ms a row; other processes may be running."""
    row = (np.random.default_rng(0).standard_normal(151936) * 2).astype(np.float32)
    sampler = Sampler(SamplingConfig(seed=1, **more), len(row))
    sampler.begin(np.random.default_rng(1).integers(0, 500, 4096).tolist())
    times = []
    for position in range(12):
        start = time.thread_time()
        sampler.sample(row, position=position)
        times.append(time.thread_time() - start)
    assert min(times) < 0.003, min(times)
