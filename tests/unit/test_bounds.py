"""What one request may ask for is bounded, and what it may ask for costs little."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from engine.bpe_engine import tokenizer
from tensormill.bounds import MOST_BIASES, MOST_LETTERS, MOST_TEXTS
from tensormill.config import SamplingConfig
from tensormill.errors import RequestError
from tensormill.sampling import Sampler, grammar
from tensormill.sampling.dry import Dry
from tensormill.sampling.kept import Kept
from tensormill.server.problem import Problem


@pytest.mark.parametrize("field", ["stop", "dry_breakers"])
def test_texts_are_bounded_in_number_and_length(field: str) -> None:
    SamplingConfig(**{field: ("a",) * MOST_TEXTS})
    SamplingConfig(**{field: ("a" * MOST_LETTERS,)})
    with pytest.raises(RequestError, match=f"{field.replace('_', '-')} must be at most {MOST_TEXTS} texts, not 129"):
        SamplingConfig(**{field: ("a",) * (MOST_TEXTS + 1)})
    with pytest.raises(RequestError, match=f"at most {MOST_LETTERS} characters, of all texts together, not 8193"):
        SamplingConfig(**{field: ("a", "b" * MOST_LETTERS)})


@pytest.mark.parametrize("field", ["max_tokens", "min_tokens", "top_k", "penalty_window", "dry_window", "dry_allowed_length"])
def test_numbers_are_refused_that_no_engine_takes(field: str) -> None:
    SamplingConfig(**{field: 1 << 53})
    with pytest.raises(RequestError, match=field.replace("_", "-")):
        SamplingConfig(**{field: 1 << 64})


def test_a_refusal_names_what_is_wrong_and_not_all_that_was_given() -> None:
    right: list[tuple[int, float]] = [(i, -100.0) for i in range(5000)]
    with pytest.raises(RequestError) as wrong:
        SamplingConfig(logit_bias=(*right, (7, 1e9)))
    assert "(7, 1000000000.0)" in str(wrong.value)
    assert len(str(wrong.value)) < 200
    with pytest.raises(RequestError, match=f"at most {MOST_BIASES} tokens"):
        SamplingConfig(logit_bias=tuple((i, 1.0) for i in range(MOST_BIASES + 1)))
    assert len(str(Problem("there is no model " + "x" * 100_000))) < 2100


def test_every_token_is_looked_at_once_for_breakers() -> None:
    """However long the prompt, and however many answers have the same breakers."""
    looked: Counter[int] = Counter()

    def piece(token: int) -> bytes:
        looked[token] += 1
        return b"ab\n"[token : token + 1]

    config = SamplingConfig(dry_multiplier=1.0, dry_breakers=("\n",))
    for _ in range(3):
        dry = Dry(config, piece)
        dry.accept([0, 1, 0, 1, 2, 0, 1, 0, 1, 0])
        dry.apply(np.ones(3, np.float32))
    assert looked == {0: 1, 1: 1, 2: 1}


@pytest.mark.parametrize("temperature", [0.0, 5e-324, 1e-46, 1e-39, 1e-30])
@pytest.mark.parametrize("more", [{}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}], ids=["kept", "all"])
def test_next_to_no_temperature_draws_the_likeliest(temperature: float, more: dict[str, Any]) -> None:
    row = np.array([1, 3, 2.5, 2.9999], np.float32)
    sampler = Sampler(SamplingConfig(temperature=temperature, seed=1, **more), 4)
    assert {sampler.sample(row, position=i) for i in range(20)} == {1}


def test_what_was_made_of_grammars_is_kept_within_bounds() -> None:
    kept: Kept[int] = Kept(room=10, most=3)
    for i in range(5):
        kept.keep("lark", str(i), i, 4)
    assert [kept.get("lark", str(i)) for i in range(5)] == [None, None, None, 3, 4]  # two of four letters have room
    assert kept.get("lark", "3") == 3
    kept.keep("lark", "5", 5, 4)
    assert [kept.get("lark", t) for t in ("3", "4", "5")] == [3, None, 5]  # who was asked for last stays
    assert kept.get("regex", "5") is None
    kept.keep("lark", "5", 6, 4)
    assert (kept.get("lark", "3"), kept.get("lark", "5")) == (3, 6)
    kept.keep("lark", "large", 7, 11)
    assert len(kept) == 0
    for i in range(5):
        kept.keep("lark", str(i), i, 0)
    assert len(kept) == 3


def test_compiled_grammars_are_bounded_by_their_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "KEPT_LETTERS", 2000)
    grammars = grammar.Grammars(tokenizer())
    for i in range(8):
        grammars.compile("regex", f"a{i}" + "b" * 600)
    assert 0 < len(grammars._compiled) <= 3
