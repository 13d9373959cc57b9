"""The second turn of a long conversation computes its new tokens only, whatever the model remembers a conversation by.

Through the crank, where every logit is seen and must have the bits of a cold prefill, and over HTTP, where `usage` tells.
TENSORMILL_LONG_TURN sets the tokens of the first turn (default 600).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import openai
import pytest

import models.zoo  # noqa: F401  (fills VARIANTS)
from engine.tiny_engine import PIECES, answers, ask, load, told, write
from models import tiny
from server.live import Live, serving
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.program import Run
from tensormill.speculation import Governor, Wish

VARIANTS = ("llama", "gemma3", "muse-spark", "deepseek2-groups-yarn", "qwen35")
RECURRENT = ("qwen35moe", "qwen3next")
PAGE = 64
FIRST = int(os.environ.get("TENSORMILL_LONG_TURN", "600"))
ANSWER, QUESTION = 80, 30  # the answer fills a page of its own


def drawn(seed: int, n: int) -> list[int]:
    return [int(t) for t in np.random.Generator(np.random.PCG64(seed)).integers(3, tiny.VOCABULARY, n)]


class Watched(Engine):
    """An engine that remembers how many tokens it computed, and the logits of each step."""

    computed = 0
    rows: list[np.ndarray]

    def outputs(self, runs: Sequence[Run]) -> dict[str, np.ndarray]:
        self.computed += sum(len(r.tokens) for r in runs)
        made = super().outputs(runs)
        self.rows.append(made["logits"].copy())
        return made

    def answer(self, prompt: list[int], **sampling: object) -> tuple[list[int], int, np.ndarray]:
        """Of a request alone: the answer's tokens, the cached ones of its prompt, and the logits that it was drawn from."""
        self.computed, self.rows = 0, []
        outputs = answers(Crank(self), [ask("x", prompt, max_tokens=ANSWER, **sampling)])["x"]
        assert outputs[-1].usage is not None
        return told(outputs)[0], outputs[-1].usage.cached, np.concatenate([r for r in self.rows if len(r)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prefix")
    for variant in (*VARIANTS, *RECURRENT):
        write(variant, path / variant)
    return path


def opened(path: Path, **config: object) -> Watched:
    engine = load(path, **{"backend": "cpu", "threads": 1, "context": FIRST + 512, "chunk": 256} | config)
    engine.__class__ = Watched
    assert isinstance(engine, Watched)
    engine.rows = []
    return engine


@pytest.mark.parametrize("kv_type", ["f32", "f16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_second_turn_has_the_bits_of_a_cold_prefill(folder: Path, variant: str, kv_type: str) -> None:
    with opened(folder / variant, kv_type=kv_type) as engine:
        first = drawn(1, FIRST)
        answer, cached, _ = engine.answer(first)
        assert (cached, len(answer)) == (0, ANSWER)
        known = len(first) + len(answer) - 1  # the answer's last token was drawn, never computed
        second = [*first, *answer, *drawn(2, QUESTION)]
        warm = engine.answer(second)
        assert warm[1] == known // PAGE * PAGE > len(first)
        assert engine.computed == len(second) - warm[1] + ANSWER - 1
    with opened(folder / variant, kv_type=kv_type) as engine:
        cold = engine.answer(second)
        assert cold[1] == 0
    assert warm[0] == cold[0]
    assert warm[2].tobytes() == cold[2].tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_question_asked_otherwise_computes_what_differs(folder: Path, variant: str) -> None:
    """The client edits its last message: what stands before it is known still (with states: up to where they were kept)."""
    with opened(folder / variant) as engine:
        first = drawn(1, FIRST)
        engine.answer(first)
        other = [*first, *drawn(3, QUESTION)]
        warm = engine.answer(other)
        assert warm[1] >= (len(first) - 1) // PAGE * PAGE  # a page that the prompt just fills: only where rows are all there is
    with opened(folder / variant) as engine:
        assert engine.answer(other)[2].tobytes() == warm[2].tobytes()


@pytest.mark.parametrize("variant", [*VARIANTS, *RECURRENT])
def test_another_user_shares_the_instructions(folder: Path, variant: str) -> None:
    """Two users with one system prompt and questions of their own; for states, a third resumes where the first two part."""
    system = drawn(1, FIRST)
    one, two, three = ([*system, *drawn(n, QUESTION + n)] for n in (4, 5, 6))
    with opened(folder / variant) as engine:
        assert engine.answer(one)[1] == 0
        warm = engine.answer(two)
        assert warm[1] >= (FIRST // 2 if engine.stateful else FIRST // PAGE * PAGE)
        assert engine.computed == len(two) - warm[1] + ANSWER - 1
        assert engine.answer(three)[1] == FIRST // PAGE * PAGE
    with opened(folder / variant) as engine:
        cold = engine.answer(two)
    assert warm[0] == cold[0]
    assert warm[2].tobytes() == cold[2].tobytes()


@pytest.mark.parametrize("variant", ["qwen35", *RECURRENT])
def test_states_are_kept_where_the_first_message_ends(folder: Path, variant: str) -> None:
    """Short instructions, too short for states on the way: a control token ends them."""
    system = [*drawn(1, 150), PIECES.index("</s>")]
    with opened(folder / variant, context=1024) as engine:
        assert engine.answer([*system, *drawn(2, 99)])[1] == 0
        assert engine.answer([*system, *drawn(3, 99)])[1] == 128


class Eager(Governor):
    """Always guesses as much as it may."""

    def most(self, id: str, limit: int, sequences: int) -> int:
        return limit


@pytest.mark.parametrize("right", [True, False])
def test_states_are_kept_at_the_end_of_a_long_answer_and_only_there(folder: Path, right: bool) -> None:
    """However many guesses come true, no step leaps over the place where the states are kept."""
    prompt = drawn(1, 100)
    with opened(folder / "qwen35", drafts=6) as engine:
        whole = prompt + told(answers(Crank(engine), [ask("x", prompt, max_tokens=200)])["x"])[0]
        assert len(whole) == 300 and len(engine.cache.tree.snapshots) == 2  # of the prompt at 64, of the answer at 256
    with opened(folder / "qwen35", drafts=6) as engine:
        crank = Crank(engine, Foresight(whole if right else [t ^ 1 for t in whole]), Eager())
        outputs = answers(crank, [ask("x", prompt, max_tokens=200)])["x"]
        assert prompt + told(outputs)[0] == whole
        assert outputs[-1].usage and (outputs[-1].usage.accepted > 100) is right
        assert sorted(n.depth * PAGE for n in engine.cache.tree.snapshots) == [64, 256]


class Foresight:
    """Guesses what a text says."""

    def __init__(self, text: list[int]) -> None:
        self._text = text

    def propose(self, wishes: Sequence[Wish]) -> list[list[int]]:
        return [self._text[len(w.tokens) :][: w.most] for w in wishes]

    def forget(self, id: str) -> None:
        pass


# ---- over HTTP ----


@pytest.fixture(scope="module")
def all_served(folder: Path) -> Iterator[openai.OpenAI]:
    paths = [folder / variant for variant in VARIANTS]
    with serving(*paths, flags=("--ctx", str(FIRST + 512), "--no-preload", "--sequences", "2"), wait=False) as live:
        yield openai.OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.mark.parametrize("variant", VARIANTS)
def test_usage_tells_what_was_cached(all_served: openai.OpenAI, variant: str) -> None:
    def asked(prompt: list[int]) -> tuple[list[int], int]:
        got = all_served.completions.create(
            model=variant, prompt=prompt, max_tokens=ANSWER, temperature=0, logprobs=0, logit_bias=dict.fromkeys("012", -100)
        )
        assert got.usage and got.usage.prompt_tokens == len(prompt) and got.usage.prompt_tokens_details
        (choice,) = got.choices
        assert choice.logprobs and choice.logprobs.tokens
        return [PIECES.index(t) for t in choice.logprobs.tokens], got.usage.prompt_tokens_details.cached_tokens or 0

    first = drawn(1, FIRST)
    answer, cached = asked(first)
    assert (cached, len(answer)) == (0, ANSWER)
    known = len(first) + len(answer) - 1
    assert asked([*first, *answer, *drawn(2, QUESTION)])[1] == known // PAGE * PAGE


def test_a_chat_goes_on_where_it_was(scripted: Live) -> None:
    """Messages, through the template both times; what the first turn's prompt ends with is not in the second's history."""
    client = openai.OpenAI(base_url=scripted.url + "/v1", api_key="none", max_retries=0, timeout=60)
    history: list = [{"role": "system", "content": "Be brief. " * 50}, {"role": "user", "content": "Good day!"}]
    first = client.chat.completions.create(model="actor", messages=history)
    history += [first.choices[0].message.model_dump(include={"role", "content"}), {"role": "user", "content": "And again."}]
    second = client.chat.completions.create(model="actor", messages=history)
    assert first.usage and second.usage and second.usage.prompt_tokens_details
    shared = first.usage.prompt_tokens - 1
    assert second.usage.prompt_tokens_details.cached_tokens == shared // PAGE * PAGE > 500
