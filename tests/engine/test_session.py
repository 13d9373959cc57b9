"""One conversation on an engine: resumed prefixes, limits, stops, fresh starts. The books are checked after every step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.tiny_engine import load, write
from models.tiny import tokens as some_tokens
from tensormill.config import SamplingConfig
from tensormill.engine import Engine, Piece, Session
from tensormill.errors import BackendError, RequestError
from tensormill.speculation import Governor

# whole pages; windows; recurrent states and rings; windows beside layers that see all; latent pages
VARIANTS = ("llama", "gemma3", "qwen35", "muse-spark", "deepseek2-groups-yarn")
TEXT = [int(t) for t in some_tokens("llama", 200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    for variant in VARIANTS:
        write(variant, path / variant)
    return path


def open_engine(folder: Path, variant: str = "llama", **config: object) -> Engine:
    return load(folder / variant, **{"backend": "cpu", "threads": 1, "kv_tokens": 256} | config)


@pytest.fixture
def engine(folder: Path) -> Iterator[Engine]:
    with open_engine(folder) as engine:
        yield engine


def check(engine: Engine, *sessions: Session) -> None:
    engine.cache.check_integrity([h for s in sessions for h in s.holdings])


def greedy(**sampling: object) -> SamplingConfig:
    return SamplingConfig(**{"temperature": 0.0, "max_tokens": 24, "ignore_eos": True} | sampling)


def answer(session: Session, prompt: list[int], sampling: SamplingConfig) -> tuple[list[int], str, str | None]:
    """Tokens, text and why it ended; the books checked at every token."""
    pieces: list[Piece] = []
    for piece in session.generate(prompt, sampling):
        check(session._engine, session)
        pieces.append(piece)
    assert [p.finish for p in pieces[:-1]] == [None] * (len(pieces) - 1) and pieces[-1].token == -1
    return [p.token for p in pieces if p.token >= 0], "".join(p.text for p in pieces), pieces[-1].finish


class Eager(Governor):
    """Always guesses as much as it may, whatever that costs."""

    def most(self, id: str, limit: int, sequences: int) -> int:
        return limit


def once(engine: Engine, prompt: list[int], **sampling: object) -> tuple[list[int], str, str | None]:
    """What a conversation of its own is answered."""
    session = engine.session()
    told = answer(session, prompt, greedy(**sampling))
    session.end()
    check(engine)
    return told


def bits(session: Session, tokens: list[int]) -> np.ndarray:
    return session.feed(tokens).view(np.int32)


# ---- resuming ----


@pytest.mark.parametrize("cut", [63, 64, 65, 100, 128, 150])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_known_beginning_is_not_computed_again_and_gives_the_same_bits(folder: Path, variant: str, cut: int) -> None:
    text = TEXT[:cut] + TEXT[160:190]
    with open_engine(folder, variant) as cold:
        expected = bits(cold.session(), text)
    with open_engine(folder, variant) as engine:
        first = engine.session()
        first.feed(TEXT[:150])
        check(engine, first)
        second = engine.session()  # beside the first one: pages are shared, not moved
        resumed = second.begin(text)
        check(engine, first, second)
        page = engine.limits.page
        assert resumed == (128 if cut >= 128 else 0) if engine.stateful else resumed == cut // page * page
        np.testing.assert_array_equal(bits(second, text[resumed:]), expected)
        check(engine, first, second)
        first.end()
        third = engine.session()  # all of it is known now, but the last page, whose logits are wanted
        resumed = third.begin(text)
        assert 0 < resumed < len(text)
        np.testing.assert_array_equal(bits(third, text[resumed:]), expected)
        check(engine, second, third)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_conversation_that_goes_on_pays_for_its_new_tokens_only(folder: Path, variant: str) -> None:
    """Prompt and answer of a turn are the beginning of the next turn's prompt."""
    with open_engine(folder, variant) as engine:
        session, prompt = engine.session(), TEXT[:70]
        for turn in range(3):
            told = answer(session, prompt, greedy(max_tokens=20))
            with open_engine(folder, variant) as cold:
                assert told == once(cold, prompt, max_tokens=20)
            assert session.timings.reused >= 64 * (turn > 0)
            prompt = prompt + told[0] + TEXT[150 + 10 * turn : 160 + 10 * turn]


@pytest.mark.parametrize("variant", VARIANTS)
def test_guesses_change_no_answer(folder: Path, variant: str) -> None:
    """By n-grams, and by the model itself, whose guesses come true while nothing is drawn."""
    prompt = TEXT[:20] * 4
    with open_engine(folder, variant) as engine:
        plain = [once(engine, prompt, max_tokens=40), once(engine, prompt, max_tokens=40, temperature=1.0, seed=3)]
    for draft in (None, str(folder / variant)):
        with open_engine(folder, variant, drafts=4, draft_model=draft) as engine:
            session = engine.session()
            session._crank._governor = Eager()
            assert answer(session, prompt, greedy(max_tokens=40)) == plain[0]
            assert session.timings.drafted >= session.timings.accepted
            assert session.timings.accepted > 8 or draft is None
            assert answer(session, prompt, greedy(max_tokens=40, temperature=1.0, seed=3)) == plain[1]
            session.end()
            check(engine)


def test_a_prompt_is_never_resumed_whole(engine: Engine) -> None:
    engine.session().feed(TEXT[:128])
    session = engine.session()
    assert session.begin(TEXT[:128]) == 64
    assert session.tokens == TEXT[:64]


def test_old_prefixes_make_room_for_new_ones(folder: Path) -> None:
    """Far more prompts than pages: the least recent go, the books hold, and answers stay what they were."""
    with open_engine(folder, sequences=1, context=192) as engine:
        prompts = [TEXT[i : i + 130] for i in range(0, 70, 10)]
        session = engine.session()
        first = bits(session, prompts[0])
        for prompt in prompts[1:]:
            session.begin(prompt)
            session.feed(prompt)
            check(engine, session)
        assert session.begin(prompts[-1]) == 128  # the last is there
        assert session.begin(prompts[0]) == 0  # the first is gone
        np.testing.assert_array_equal(bits(session, prompts[0]), first)


# ---- limits ----


@pytest.mark.parametrize("prompt", [1, 63, 64, 65, 90, 95, 96])
def test_an_answer_ends_where_the_context_does(folder: Path, prompt: int) -> None:
    with open_engine(folder, context=96) as engine:
        made, _, finish = once(engine, TEXT[:prompt], max_tokens=None)
        assert finish == "context"
        assert len(made) == max(96 - prompt, 1)  # prompt and answer fill it; a full prompt still gets the token that follows


def test_what_does_not_fit_is_refused_and_leaves_nothing_behind(engine: Engine) -> None:
    session = engine.session()
    for tokens, words in ((TEXT + TEXT, "do not fit in the context of 256"), ([], "no tokens"), ([1, 96], "token 96")):
        with pytest.raises(RequestError, match=words):
            list(session.generate(tokens, greedy()))
        check(engine, session)
    session.feed(TEXT)
    with pytest.raises(RequestError, match="257 tokens do not fit"):
        session.feed(TEXT[:57])
    check(engine, session)
    assert len(session.feed(TEXT[:56])) == engine.n_vocab  # exactly full


def test_no_more_sessions_than_the_engine_has_sequences(engine: Engine) -> None:
    held = [engine.session() for _ in range(4)]
    for session in held:
        session.feed(TEXT[:3])
    with pytest.raises(RequestError, match="every slot"):
        engine.session().feed(TEXT[:3])
    held[1].end()
    check(engine, *held)
    engine.session().feed(TEXT[:3])


def test_no_pages_left_is_said_and_the_session_can_start_again(engine: Engine) -> None:
    pages = engine.cache.pools[0].free
    a, b = engine.session(), engine.session()
    a.feed(TEXT)
    b.feed(TEXT[::-1])
    c = engine.session()
    assert pages == 8
    with pytest.raises(RequestError, match="no room in the caches"):
        c.feed([7, *TEXT])
    check(engine, a, b, c)
    b.end()
    c.begin([7, *TEXT])
    c.feed([7, *TEXT])
    check(engine, a, b, c)


@pytest.mark.parametrize("most", [0, 1, 5])
def test_max_tokens(engine: Engine, most: int) -> None:
    made, _, finish = once(engine, TEXT[:9], max_tokens=most)
    assert (len(made), finish) == (most, "length")


# ---- stops ----


def test_a_stop_string_ends_the_answer_before_itself(engine: Engine) -> None:
    told = ((prompt, *once(engine, prompt)) for prompt in (TEXT[i : i + 20] for i in range(99)))
    prompt, made, text, _ = next(t for t in told if len(t[2]) == len(t[1]))  # a character a token: no <unk> among them
    for at, size in ((0, 1), (3, 2), (10, 5), (20, 4)):
        stop = text[at : at + size]
        first = text.index(stop)
        assert once(engine, prompt, stop=(stop,)) == (made[: first + size], text[:first], "stop")


def test_what_only_begins_a_stop_string_is_told_at_the_end(engine: Engine) -> None:
    _, text, _ = once(engine, TEXT[:20])
    assert once(engine, TEXT[:20], stop=(text[-2:] + "nothing like it",))[1:] == (text, "length")


def test_the_end_token_ends_the_answer_and_is_not_part_of_it(folder: Path, tmp_path: Path) -> None:
    with open_engine(folder) as engine:
        made, text, _ = once(engine, TEXT[:20])
    end = next(t for t in made if made.index(t) > 3)
    write("llama", tmp_path / "ends", tokenizer__ggml__eos_token_id=end)
    with load(tmp_path / "ends", backend="cpu", threads=1) as engine:
        at = made.index(end)
        assert once(engine, TEXT[:20], ignore_eos=False) == (made[:at], text[:at], "stop")
        assert once(engine, TEXT[:20])[0] == made


# ---- starting again ----


def test_an_answer_that_nobody_reads_to_its_end(engine: Engine) -> None:
    session = engine.session()
    whole = once(engine, TEXT[:70])
    for read in (1, 2, 7):
        pieces = session.generate(TEXT[:70], greedy())
        for _ in range(read):
            next(pieces)
        pieces.close()
    assert answer(session, TEXT[:70], greedy()) == whole


def test_a_long_prompt_can_be_left_between_its_chunks(folder: Path) -> None:
    with open_engine(folder, VARIANTS[0], chunk=16) as engine:
        session = engine.session()
        pieces = session.generate(TEXT[:70], greedy())
        assert [next(pieces) for _ in range(2)] == [Piece("", -1)] * 2
        assert session.timings.prefill_tokens == 32
        pieces.close()
        check(engine, session)
        found = answer(session, TEXT[:70], greedy())
        session.end()
        assert found == once(engine, TEXT[:70])


@pytest.mark.parametrize("variant", VARIANTS)
def test_sessions_in_turns_do_not_see_each_other(folder: Path, variant: str) -> None:
    with open_engine(folder, variant) as engine:
        texts = [TEXT[:150], TEXT[50:200], TEXT[:64] + TEXT[100:180]]
        sessions = [engine.session() for _ in texts]
        sizes, last = (1, 7, 48, 20), {}
        for turn in range(40):
            for i, (session, text) in enumerate(zip(sessions, texts, strict=True)):
                at = len(session.tokens)
                if at < len(text):
                    last[i] = bits(session, text[at : at + sizes[(turn + i) % 4]])
                    check(engine, *sessions)
        for session in sessions:
            session.end()
        check(engine)
    with open_engine(folder, variant) as engine:
        for i, text in enumerate(texts):
            session = engine.session()
            np.testing.assert_array_equal(last[i], bits(session, text))
            session.end()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_every_token_are_those_of_feeding_up_to_it(folder: Path, variant: str) -> None:
    with open_engine(folder, variant, rows=256) as engine:
        session = engine.session()
        every = session.logits(TEXT[:140])
        assert every.shape == (140, engine.n_vocab)
        session.begin([])
        for i, token in enumerate(TEXT[:140]):
            np.testing.assert_array_equal(bits(session, [token]), every[i].view(np.int32))
        check(engine, session)


def test_the_same_seed_draws_the_same_answer(engine: Engine) -> None:
    drawn = [once(engine, TEXT[:30], temperature=1.0, seed=seed, top_k=0) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_broken_file_is_not_the_askers_fault(tmp_path: Path) -> None:
    path = write("llama", tmp_path / "broken", noise=float("nan"))
    with load(path, backend="cpu", threads=1) as engine, pytest.raises(BackendError, match="the file or a kernel is broken"):
        list(engine.session().generate(TEXT[:5], greedy()))
