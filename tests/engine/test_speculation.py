"""Speculation never changes an answer: the same tokens, text and log-probabilities with any proposer, in any company."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.tiny_engine import answers, ask, load, told, write
from models.tiny import tokens as some_tokens
from tensormill.engine import drafting
from tensormill.engine.crank import Crank
from tensormill.errors import ModelError
from tensormill.speculation import FirstOf, Governor, Wish

# whole pages, windows, recurrent states, latent pages; the reference backend is slow
MODELS = [("cpu", v) for v in ("llama", "gemma3", "qwen35", "deepseek2-lite")] + [("reference", v) for v in ("llama", "qwen35")]


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


class Plain(NamedTuple):
    """A model's file, its backend, and its answers without speculation."""

    path: Path
    backend: str
    truth: dict[str, tuple]

    @property
    def whole(self) -> dict[str, list[int]]:
        return {r.id: r.tokens + self.truth[r.id][0] for r in requests()}

    def load(self, **config: object):
        return load(self.path, backend=self.backend, threads=1, **config)


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    backend, variant = request.param
    try:
        importlib.import_module(f"tensormill.backends.{backend}").compile  # noqa: B018
    except (ImportError, AttributeError) as error:
        pytest.skip(f"the backend {backend} is not built: {error}")
    made = Plain(write(variant, tmp_path_factory.mktemp("tiny") / f"{variant}.gguf"), backend, {})
    with made.load() as engine:
        made.truth.update({id: told(o) for id, o in answers(Crank(engine), requests(), late=2).items()})
    return made


def same(outputs, expected, *, bits: bool) -> None:
    """Tokens and text equal; log-probabilities too, bit for bit but for the reference backend (its sums follow the step)."""
    (tokens, chances, text), (tokens_, chances_, text_) = told(outputs), expected
    assert (tokens, text) == (tokens_, text_), outputs[0].id
    assert [t for t, _ in chances] == [t for t, _ in chances_]
    assert [p for _, p in chances] == pytest.approx([p for _, p in chances_], rel=0, abs=0 if bits else 1e-4)


def check(engine, plain: Plain, proposer=None, late: int = 2, governor: Governor | None = None) -> dict:
    """Ask with speculation; what each request cost."""
    outputs = answers(Crank(engine, proposer, governor or Eager()), requests(), late)
    for id, expected in plain.truth.items():
        same(outputs[id], expected, bits=plain.backend == "cpu")
    return {id: o[-1].usage for id, o in outputs.items()}


def test_wild_guesses(plain: Plain):
    with plain.load(drafts=5) as engine:
        proposer = Wild(plain.whole)
        usage = check(engine, plain, proposer)
        assert proposer.asked > 1, "guesses for several sequences at once"
        assert sum(u.accepted for u in usage.values()) > 10
        assert sum(u.drafted - u.accepted for u in usage.values()) > 10
        usage = check(engine, plain, Wild(plain.whole, seed=1), late=6)  # now on cached prefixes
        assert sum(u.cached for u in usage.values()) > 0


def test_ngram(plain: Plain):
    with plain.load(drafts=6) as engine:
        check(engine, plain, governor=Governor())
        usage = check(engine, plain)
    assert all(u.accepted <= u.drafted for u in usage.values())


@pytest.mark.parametrize("other", ["same", "similar", "qwen35"])
def test_draft_model(plain: Plain, other: str, tmp_path: Path):
    """The model itself, one like it, and one with recurrent states as draft model."""
    name = plain.path.stem if other != "qwen35" else other
    draft = write(name, tmp_path / "draft.gguf", noise=0.0 if other == "same" else 0.05)
    with plain.load(drafts=4, draft_model=str(draft)) as engine:
        proposer = drafting.draft_model(engine, str(draft))
        usage = check(engine, plain, proposer)
        drafted, accepted = (sum(getattr(u, k) for u in usage.values()) for k in ("drafted", "accepted"))
        if other == "similar":
            assert 0 < accepted < drafted
        if other == "same":
            assert usage["greedy"].accepted == usage["greedy"].drafted > 8
            again = check(engine, plain, proposer, late=6)
            assert again["long"].accepted == again["long"].drafted > 8


def test_few_pages(plain: Plain):
    """With hardly any pages sequences are preempted and guesses dropped; answers stay."""
    with plain.load(drafts=5, draft_model=str(plain.path)) as engine:
        pool = engine.cache.pools[0]
        held = [pool.take() for _ in range(pool.free - 4)]
        assert all(held)
        crank = Crank(engine, FirstOf([Wild(plain.whole), engine.proposer]), Eager())
        crank.scheduler.check_integrity = lambda: None  # the test itself holds pages
        outputs = answers(crank, requests())
    for id, expected in plain.truth.items():
        same(outputs[id], expected, bits=plain.backend == "cpu")


def test_another_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write("llama", tmp_path / "llama.gguf")
    monkeypatch.setattr("engine.tiny_engine.PIECES", ["<unk>", "<s>", "</s>", *(chr(300 + i) for i in range(93))])
    other = write("llama", tmp_path / "other.gguf")
    with load(path, drafts=2, draft_model=str(other)) as engine, pytest.raises(ModelError, match="token 3 is 'Ĭ'"):
        _ = engine.proposer
