"""Texts that are read, not answered: the same numbers as a session's, whatever is answered beside them; books checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.tiny_engine import ask, load, told, write
from models.tiny import tokens as some_tokens
from tensormill.engine.answer import chance
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Cancel, Embed, Embedded, Failed, Output, Reply, Score, Scored
from tensormill.program import Run

VARIANTS = ("llama", "gemma3", "qwen35", "muse-spark", "deepseek2-groups-yarn")
TEXT = [int(t) for t in some_tokens("llama", 150)]
SETTINGS = {"backend": "cpu", "threads": 1, "rows": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    for variant in VARIANTS:
        write(variant, path / variant)
    return path


def run(crank: Crank) -> list[Reply]:
    replies: list[Reply] = []
    while crank.busy:
        replies += crank.turn()
        crank.check_integrity()
    return replies


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_those_of_a_session(folder: Path, variant: str) -> None:
    with load(folder / variant, **SETTINGS) as engine:
        logits = engine.session().logits(TEXT)
    with load(folder / variant, **SETTINGS) as engine:
        crank = Crank(engine)
        for id in ("first", "again"):  # the second behind what the first left in the slot
            assert not crank.take(Score(id, TEXT, top=2))
        first, again = run(crank)
    assert isinstance(first, Scored)
    assert isinstance(again, Scored)
    assert first.chances == again.chances == [chance(row, t, 2) for row, t in zip(logits, TEXT[1:], strict=False)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_embeddings_are_pooled_hidden_rows(folder: Path, variant: str) -> None:
    with load(folder / variant, **SETTINGS | {"rows": 256, "chunk": 256}) as engine:
        holding = engine.cache.open([])
        engine.cache.reserve(holding, len(TEXT))
        whole = Run(TEXT, past=0, pages=holding.tables, slot=holding.slot, want=list(range(len(TEXT))))
        hidden = np.array(engine.outputs([whole])["hidden"])
    with load(folder / variant, **SETTINGS) as engine:
        crank = Crank(engine)
        for pooling in ("mean", "last", "cls"):
            crank.take(Embed(pooling, TEXT, pooling))
        made = {r.id: np.frombuffer(r.vector, "<f4") for r in run(crank) if isinstance(r, Embedded)}
    assert np.array_equal(made["last"], hidden[-1])
    assert np.array_equal(made["cls"], hidden[0])
    assert made["mean"] == pytest.approx(hidden.mean(axis=0), abs=1e-5)


def test_keys_take_turns(folder: Path) -> None:
    with load(folder / "llama", **SETTINGS) as engine:
        crank = Crank(engine)
        for id in ("a0", "a1", "a2", "a3", "b0", "b1", "c0"):
            assert not crank.take(Embed(id, TEXT, key=id[0]))
        crank.turn()  # a0 is under way
        crank.take(Cancel("a2"))
        crank.take(Cancel("c0"))
        assert [r.id for r in run(crank)] == ["a0", "b0", "a1", "b1", "a3"]


@pytest.mark.parametrize("variant", ["llama", "qwen35"])
def test_answers_beside_readings_are_the_same(folder: Path, variant: str) -> None:
    requests = [ask(f"{i}", TEXT[i : 40 * (i + 1)], seed=i, temperature=1.0) for i in range(3)]

    def answered(readings: list[Embed | Score]) -> dict[str, object]:
        with load(folder / variant, **SETTINGS) as engine:
            crank = Crank(engine)
            for message in [*readings, *requests]:
                assert not crank.take(message)
            outputs = [r for r in run(crank) if isinstance(r, Output)]
        return {r.id: told([o for o in outputs if o.id == r.id]) for r in requests}

    readings = [Score("s", TEXT), Embed("e", TEXT[:90]), Embed("f", TEXT[50:], "last")]
    assert answered(readings) == answered([])


def test_a_reading_is_cancelled_midway_and_gives_back_its_pages(folder: Path) -> None:
    with load(folder / "llama", **SETTINGS) as engine:
        crank = Crank(engine)
        slots = engine.cache.free_slots
        crank.take(Score("a", TEXT))
        crank.take(Score("b", TEXT[:30]))
        crank.turn()
        assert engine.cache.free_slots == slots - 1
        crank.take(Cancel("a"))
        crank.check_integrity()
        assert engine.cache.free_slots == slots
        (left,) = run(crank)
        assert left.id == "b"


def test_what_cannot_be_read_is_refused(folder: Path) -> None:
    with load(folder / "llama", **SETTINGS) as engine:
        crank = Crank(engine)
        for message in (Embed("a", []), Embed("b", [10**6]), Embed("c", [5], "best"), Score("d", [5] * 300)):
            (refused,) = crank.take(message)
            assert isinstance(refused, Failed)
        assert not crank.busy
