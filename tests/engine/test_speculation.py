"""Speculation never changes an answer: the same tokens, text and log-probabilities with any proposer, in any company."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.tiny_engine import answers, ask, load, told, write
from models.tiny import tokens as some_tokens
from tensormill.engine.crank import Crank
from tensormill.errors import ModelError
from tensormill.speculation import FirstOf, Governor, Wish

VARIANTS = ["llama", "gemma3", "qwen35", "deepseek2-lite"]


class Wild:
    """Guesses that are right, wrong and too long, at random: what no proposer may do worse than."""

    def __init__(self, truth: dict[str, list[int]], seed: int = 0) -> None:
        self._truth = truth
        self._rng = random.Random(seed)
        self.asked = 0

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        self.asked = max(self.asked, len(wishes))
        out = []
        for wish in wishes:
            right = self._truth[wish.id][len(wish.tokens) :][: wish.most + 2]
            cut = self._rng.randrange(len(right) + 1)
            out.append(right[:cut] + [self._rng.randrange(96) for _ in range(self._rng.randrange(3))])
        return out

    def forget(self, id: str) -> None:
        pass


class Eager(Governor):
    """Always guesses as much as it may, whatever it costs."""

    def most(self, id: str, limit: int, sequences: int) -> int:
        return limit


def requests() -> list:
    prompt = [int(t) for t in some_tokens("llama", 70)]
    return [
        ask("greedy", prompt[:20]),
        ask("long", prompt),
        ask("drawn", prompt[:9], temperature=1.0, seed=5, top_k=0),
        ask("penalised", prompt[:66], temperature=0.7, seed=6, repeat_penalty=1.3, max_tokens=25),
        ask("late", prompt[:12] * 3, temperature=0.5, seed=7, max_tokens=1),
        ask("later", prompt[:65], presence_penalty=0.5, max_tokens=30),
    ]


@pytest.fixture(scope="module", params=VARIANTS)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A model's file and its answers without speculation."""
    path = write(request.param, tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf")
    with load(path) as engine:
        outputs = answers(Crank(engine), requests(), late=2)
    return path, {id: told(o) for id, o in outputs.items()}


def same(outputs, expected) -> None:
    """Tokens and text equal; log-probabilities too, up to the reference backend's order of sums, which follows the step."""
    (tokens, chances, text), (tokens_, chances_, text_) = told(outputs), expected
    assert (tokens, text) == (tokens_, text_), outputs[0].id
    assert [t for t, _ in chances] == [t for t, _ in chances_]
    assert [p for _, p in chances] == pytest.approx([p for _, p in chances_], abs=1e-4)


def check(engine, proposer, truth, late: int = 2, governor: Governor | None = None) -> dict:
    outputs = answers(Crank(engine, proposer, governor or Eager()), requests(), late)
    for id, expected in truth.items():
        same(outputs[id], expected)
    return {id: o[-1].usage for id, o in outputs.items()}


def test_wild_guesses(plain):
    path, truth = plain
    whole = {r.id: r.tokens + truth[r.id][0] for r in requests()}
    with load(path, drafts=5) as engine:
        proposer = Wild(whole)
        usage = check(engine, proposer, truth)
        assert proposer.asked > 1, "guesses for several sequences at once"
        assert sum(u.accepted for u in usage.values()) > 10
        assert sum(u.drafted - u.accepted for u in usage.values()) > 10
        usage = check(engine, Wild(whole, seed=1), truth, late=6)  # now on cached prefixes
        assert sum(u.cached for u in usage.values()) > 0


def test_ngram(plain):
    path, truth = plain
    with load(path, drafts=6) as engine:
        check(engine, None, truth, governor=Governor())
        usage = check(engine, None, truth)
    assert all(u.accepted <= u.drafted for u in usage.values())


@pytest.mark.parametrize("other", ["same", "similar", "qwen35"])
def test_draft_model(plain, other: str, tmp_path: Path):
    """The model itself, one like it and one of another kind as draft model; tiny pages of work, so that it falls behind."""
    path, truth = plain
    name = path.stem if other != "qwen35" else other
    draft = write(name, tmp_path / "draft.gguf", noise=0.0 if other == "same" else 0.05)
    with load(path, drafts=4, draft_model=str(draft)) as engine:
        proposer = FirstOf([engine.proposer._proposers[1]])
        usage = check(engine, proposer, truth)
        drafted, accepted = (sum(getattr(u, k) for u in usage.values()) for k in ("drafted", "accepted"))
        if other == "same":
            assert usage["greedy"].accepted == usage["greedy"].drafted > 20
        if other == "similar":
            assert 0 < accepted < drafted
        again = check(engine, proposer, truth, late=6)
        if other == "same":
            assert again["long"].accepted == again["long"].drafted > 20


def test_few_pages(plain):
    """With hardly any pages sequences are preempted and guesses dropped; answers stay."""
    path, truth = plain
    whole = {r.id: r.tokens + truth[r.id][0] for r in requests()}
    with load(path, drafts=5, draft_model=str(path)) as engine:
        pool = engine.cache.pools[0]
        held = [pool.take() for _ in range(pool.free - 4)]
        assert all(held)
        crank = Crank(engine, FirstOf([Wild(whole), engine.proposer]), Eager())
        crank.scheduler.check_integrity = lambda: None  # the test itself holds pages
        outputs = answers(crank, requests())
    for id, expected in truth.items():
        same(outputs[id], expected)


def test_another_vocabulary(plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, _ = plain
    monkeypatch.setattr("engine.tiny_engine.PIECES", ["<unk>", "<s>", "</s>", *(chr(300 + i) for i in range(93))])
    other = write("llama", tmp_path / "other.gguf")
    with load(path, drafts=2, draft_model=str(other)) as engine, pytest.raises(ModelError, match="token 3 is 'Ĭ'"):
        _ = engine.proposer
