"""Many requests on one engine: each is answered as if it were alone, whatever happens around it. Books checked every turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.tiny_engine import answers, ask, load, told, write
from models.tiny import tokens as some_tokens
from tensormill.cache import Cache
from tensormill.config import SamplingConfig
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Cancel, Failed, Generate, Output
from tensormill.speculation import Governor, Wish

VARIANTS = ("llama", "gemma3", "qwen35", "muse-spark", "deepseek2-groups-yarn", "qwen3moe")
TEXT = [int(t) for t in some_tokens("llama", 200)]
LENGTHS = (1, 2, 3, 5, 17, 40, 47, 48, 49, 63, 64, 65, 96, 100, 128, 150)
SAMPLINGS = (
    {},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"temperature": 0.7, "repeat_penalty": 1.3, "max_tokens": 9},
    {"max_tokens": 31, "presence_penalty": 0.5},
    {"ignore_eos": False, "temperature": 0.9},
)


def sixteen() -> list[Generate]:
    """Prompts of mixed lengths, each answered in its own way; some begin alike."""
    rng = random.Random(4)
    shared = TEXT[:100]
    made = []
    for i, length in enumerate(LENGTHS):
        own = [rng.randrange(3, 96) for _ in range(length)]
        prompt = (shared[: length - 2] + own)[:length] if i % 3 == 0 else own
        made.append(ask(f"{i}", prompt, seed=100 + i, **SAMPLINGS[i % len(SAMPLINGS)]))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    for variant in VARIANTS:
        write(variant, path / variant)
    return path


def open_engine(folder: Path, variant: str = "llama", **config: object) -> Engine:
    return load(folder / variant, **{"backend": "cpu", "threads": 1, "context": 512} | config)


def alone(folder: Path, variant: str, requests: Sequence[Generate]) -> dict[str, tuple]:
    """What each is answered on an engine of its own, with no cached prefix."""
    found = {}
    for request in requests:
        with open_engine(folder, variant, sequences=1) as engine:
            found[request.id] = told(answers(Crank(engine), [request])[request.id])
    return found


@pytest.fixture(scope="module")
def truth(folder: Path) -> dict[str, dict[str, tuple]]:
    return {variant: alone(folder, variant, sixteen()) for variant in VARIANTS}


@pytest.mark.parametrize("chunk", [48, 7])
@pytest.mark.parametrize("variant", VARIANTS)
def test_sixteen_requests_are_each_answered_as_alone(folder: Path, truth: dict, variant: str, chunk: int) -> None:
    requests = sixteen()
    with open_engine(folder, variant, sequences=16, chunk=chunk, threads=2) as engine:
        crank = Crank(engine)
        together = answers(crank, requests)
        assert {id: told(o) for id, o in together.items()} == truth[variant]
        random.Random(1).shuffle(requests)
        again = answers(crank, requests, late=9)  # other neighbours, and prefixes are known now
        assert {id: told(o) for id, o in again.items()} == truth[variant]
        assert sum(o[-1].usage.cached for o in again.values()) > 100 * (not engine.stateful)
        assert not crank.busy and not crank.turn()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_session_is_answered_alike(folder: Path, truth: dict, variant: str) -> None:
    with open_engine(folder, variant) as engine:
        for request in sixteen():
            session = engine.session()
            pieces = list(session.generate(request.tokens, request.sampling))
            session.end()
            tokens, _, text = truth[variant][request.id]
            assert ([p.token for p in pieces if p.token >= 0], "".join(p.text for p in pieces)) == (tokens, text)


# ---- few pages ----


def shrink(engine: Engine, pages: int) -> None:
    """An engine with hardly any pages (its executable has more)."""
    few = {w: min(n, pages + 1) for w, n in engine.limits.pages.items()}
    engine.cache = Cache(few, page=engine.limits.page, slots=engine.limits.slots, stateful=engine.stateful)


class Preempted(Crank):
    """A crank that counts how often somebody lost their pages."""

    count = 0

    def turn(self) -> list:
        before = {s: s.preempted for s in (*self.scheduler.running, *self.scheduler.waiting)}
        replies = super().turn()
        self.count += sum(s.preempted - n for s, n in before.items())
        return replies


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_hardly_any_pages_requests_take_turns_and_lose_nothing(folder: Path, truth: dict, variant: str) -> None:
    with open_engine(folder, variant, sequences=16, context=256) as engine:
        shrink(engine, 5)  # 320 tokens, of 16 requests with 1279
        crank = Preempted(engine)
        together = answers(crank, sixteen(), late=4)
    assert {id: told(o) for id, o in together.items()} == truth[variant]
    assert crank.count > 0, "nobody was preempted: the test shows nothing"


# ---- cancelling ----


@pytest.mark.parametrize("variant", ["llama", "gemma3", "qwen35"])
def test_a_cancelled_request_gives_back_all_it_held_and_disturbs_nobody(folder: Path, truth: dict, variant: str) -> None:
    """At every stage: before its first turn, in its prompt, in its answer, after its end; and ids that nobody has."""
    with open_engine(folder, variant, sequences=4) as engine:
        crank, turns = Crank(engine), {"15": 0, "14": 2, "0": 5, "1": 9, "13": 12, "7": 40, "nobody": 3}
        for request in sixteen():
            assert crank.take(request) == []
        outputs: dict[str, list[Output]] = {r.id: [] for r in sixteen()}
        gone: set[str] = set()
        for turn in range(1000):
            for id, at in turns.items():
                if at == turn:
                    assert crank.take(Cancel(id)) == crank.take(Cancel(id)) == []
                    gone.add(id)
                    crank.scheduler.check_integrity()
            for reply in crank.turn():
                assert isinstance(reply, Output) and reply.id not in gone
                outputs[reply.id].append(reply)
            crank.scheduler.check_integrity()
            if not crank.busy:
                break
        assert engine.cache.free_slots == 4
        for id, expected in truth[variant].items():
            tokens, chances, text = told(outputs[id])
            if id not in turns or (outputs[id] and outputs[id][-1].finish):
                assert (tokens, chances, text) == expected
            else:
                assert tokens == expected[0][: len(tokens)] and len(tokens) < len(expected[0])


def test_a_long_prompt_leaves_answers_their_pace(folder: Path) -> None:
    """On a clock by which each token takes a millisecond, whoever decodes waits no longer than 0.1 s for a step."""
    with open_engine(folder, sequences=4, context=1024, chunk=512) as engine:
        crank = Crank(engine, clock=lambda: crank.computed / 1000)
        assert not crank.take(ask("short", TEXT[:5], max_tokens=90))
        for _ in range(3):
            crank.turn()
        assert not crank.take(ask("long", TEXT * 4))
        sizes, before = [], crank.computed
        while "long" not in {reply.id for reply in crank.turn()}:
            sizes.append(crank.computed - before)
            before = crank.computed
    assert 90 < max(sizes) <= 100 and sum(sizes) > 700


# ---- refusals ----


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask("x", []), "no tokens"),
        (ask("x", [5, 96]), "token 96 is not in the vocabulary"),
        (ask("x", [-1]), "token -1"),
        (ask("x", TEXT * 3), "do not fit in the context of 512"),
        (ask("taken", [5]), "request 'taken' already"),
    ],
)
def test_what_cannot_run_is_refused_at_once(folder: Path, request_: Generate, words: str) -> None:
    with open_engine(folder) as engine:
        crank = Crank(engine)
        assert crank.take(ask("taken", TEXT[:70])) == []
        (reply,) = crank.take(request_)
        assert isinstance(reply, Failed) and reply.id == request_.id and words in reply.message
        crank.scheduler.check_integrity()
        while crank.busy:  # the other one goes on
            assert all(isinstance(r, Output) for r in crank.turn())


def test_an_id_may_be_used_again_when_its_answer_has_ended(folder: Path) -> None:
    with open_engine(folder) as engine:
        crank = Crank(engine)
        first, second = (told(answers(crank, [ask("x", TEXT[:70])])["x"]) for _ in range(2))
        assert first == second


# ---- ends ----


@pytest.mark.parametrize("prompt", [1, 64, 95, 96])
def test_an_answer_ends_where_the_context_does(folder: Path, prompt: int) -> None:
    with open_engine(folder, context=96) as engine:
        last = answers(Crank(engine), [ask("x", TEXT[:prompt], max_tokens=None)])["x"][-1]
        assert last.finish == "context"
        assert last.usage.output == max(96 - prompt, 1)


@pytest.mark.parametrize("most", [0, 1, 5])
def test_max_tokens(folder: Path, most: int) -> None:
    with open_engine(folder) as engine:
        outputs = answers(Crank(engine), [ask("x", TEXT[:9], max_tokens=most)])["x"]
        assert (len(told(outputs)[0]), outputs[-1].finish, outputs[-1].usage.output) == (most, "length", most)


def test_stop_strings_and_end_tokens_are_named(folder: Path, tmp_path: Path) -> None:
    with open_engine(folder) as engine:
        tokens, _, text = told(answers(Crank(engine), [ask("x", TEXT[:23])])["x"])
        stops = ("nothing", text[5:8])
        *_, last = outputs = answers(Crank(engine), [ask("x", TEXT[:23], stop=stops)])["x"]
        assert (last.finish, last.matched, told(outputs)[2]) == ("stop", text[5:8], text[: text.index(text[5:8])])
    end = next(t for t in tokens if tokens.index(t) > 3)
    write("llama", tmp_path / "ends", tokenizer__ggml__eos_token_id=end)
    with load(tmp_path / "ends", backend="cpu") as engine:
        *_, last = outputs = answers(Crank(engine), [ask("x", TEXT[:23], ignore_eos=False)])["x"]
        assert (last.finish, last.matched, told(outputs)[0]) == ("stop", end, tokens[: tokens.index(end)])


def test_usage_counts_tokens_and_times_in_order(folder: Path) -> None:
    now = iter(range(10000))
    with open_engine(folder, sequences=1) as engine:
        crank = Crank(engine, clock=lambda: float(next(now)))
        found = answers(crank, [ask("a", TEXT[:100]), ask("b", [*TEXT[:100], 5])])
    a, b = (found[id][-1].usage for id in "ab")
    assert (a.prompt, a.cached, a.output) == (100, 0, 24) and (b.prompt, b.cached) == (101, 64)
    assert 0 < a.queued < a.first < a.total and b.queued >= a.total  # one at a time
    assert all(o.usage is None for o in found["a"][:-1])


def test_log_probabilities_are_those_of_the_model(folder: Path) -> None:
    with open_engine(folder) as engine:
        outputs = answers(Crank(engine), [ask("x", TEXT[:30], temperature=2.0, seed=1, top_k=0)])["x"]
        for chance in (c for o in outputs for c in o.chances):
            assert len(chance.top) == 2 and chance.top[0][1] >= chance.top[1][1]
            assert chance.logprob <= chance.top[0][1] <= 0
        silent = Generate("y", TEXT[:30], SamplingConfig(max_tokens=3))
        assert all(not o.chances for o in answers(Crank(engine), [silent])["y"])


# ---- sharing ----


def test_prefixes_are_shared_within_a_salt_only(folder: Path) -> None:
    with open_engine(folder, sequences=4) as engine:
        crank = Crank(engine)

        def cached(salt: str) -> int:
            asked = Generate("x", TEXT[:140], SamplingConfig(temperature=0.0, max_tokens=2), salt=salt)
            return answers(crank, [asked])["x"][-1].usage.cached

        assert [cached(salt) for salt in ("", "", "one", "two", "one")] == [0, 128, 0, 0, 128]


def test_requests_that_begin_alike_and_come_together_compute_it_once(folder: Path) -> None:
    with open_engine(folder, sequences=8) as engine:
        found = answers(Crank(engine), [ask(f"{i}", [*TEXT[:150], 5 + i]) for i in range(8)])
    assert sorted(o[-1].usage.cached for o in found.values()) == [0] + [128] * 7


# ---- everything at once ----


class Wild:
    """Guesses that are right, wrong and too long, at random."""

    def __init__(self, truth: dict[str, list[int]], seed: int) -> None:
        self._truth, self._rng = truth, random.Random(seed)

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        made = []
        for wish in wishes:
            right = self._truth[wish.id][len(wish.tokens) :][: wish.most + 1]
            right = right[: self._rng.randrange(len(right) + 1)]
            made.append(right + [self._rng.randrange(96) for _ in range(self._rng.randrange(3))])
        return made

    def forget(self, id: str) -> None:
        pass


class Eager(Governor):
    """Always guesses as much as it may."""

    def most(self, id: str, limit: int, sequences: int) -> int:
        return limit


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_storms(folder: Path, truth: dict, variant: str, seed: int) -> None:
    """Arrivals, priorities, cancels, guesses and preemption at random: who gets to the end is answered as alone."""
    rng = random.Random(f"{variant} {seed}")
    whole = {r.id: r.tokens + truth[variant][r.id][0] for r in sixteen()}
    with open_engine(folder, variant, sequences=rng.choice([3, 16]), context=256, drafts=3) as engine:
        shrink(engine, 5)
        crank = Preempted(engine, Wild(whole, seed), Eager())
        coming, outputs, ended = sixteen() * 2, {}, 0
        rng.shuffle(coming)
        while coming or crank.busy:
            while coming and rng.random() < 0.4:
                request = coming.pop()
                settings = {f: getattr(request, f) for f in request.__struct_fields__}
                settings |= {"priority": rng.randrange(3), "key": rng.choice("ab"), "salt": rng.choice(["", "s"])}
                if not crank.take(Generate(**settings)):
                    outputs[request.id] = []
            if outputs and rng.random() < 0.01:
                crank.take(Cancel(rng.choice(list(outputs))))
            for reply in crank.turn():
                outputs[reply.id].append(reply)
                if reply.finish:
                    ended += 1
                    assert told(outputs[reply.id]) == truth[variant][reply.id], reply.id
            crank.scheduler.check_integrity()
        assert ended > 16 and crank.count and sum(o[-1].usage.accepted for o in outputs.values() if o and o[-1].usage)
        assert engine.cache.free_slots == engine.limits.slots - 1
