"""Structured output through the crank: whatever a random model would rather say, its answer has the form that was asked for."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.bpe_engine import tokenizer, write
from engine.test_speculation import Eager
from engine.tiny_engine import answers, load, told
from tensormill.config import SamplingConfig
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Cancel, Failed, Generate, Grammar

PROMPT = tokenizer().encode("The weather in the north")
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 8},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "kind": {"enum": ["warm", "cold", None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["city", "days", "kind", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with load(write(tmp_path_factory.mktemp("tiny") / "bpe.gguf"), context=512, chunk=64, drafts=4) as engine:
        yield engine


def ask(id: str, kind: str, text: Any, **sampling: object) -> Generate:
    text = text if isinstance(text, str) else json.dumps(text)
    config = SamplingConfig(**({"temperature": 0.0, "max_tokens": 200} | sampling))
    return Generate(id, PROMPT, config, logprobs=2, grammar=Grammar(kind, text))


def one(engine: Engine, request: Generate, proposer=None) -> tuple[str, str | None]:
    outputs = answers(Crank(engine, proposer, Eager()), [request])[request.id]
    return told(outputs)[2], outputs[-1].finish


def fits(schema: Any, value: Any) -> bool:
    """A judge of its own, for the keywords that are used here."""
    if "anyOf" in schema:
        return any(fits(s, value) for s in schema["anyOf"])
    if "enum" in schema:
        return any(value == e and type(value) is type(e) for e in schema["enum"])
    kind = schema["type"]
    if kind == "object":
        return (
            isinstance(value, dict)
            and set(schema["required"]) <= set(value) <= set(schema["properties"])
            and all(fits(schema["properties"][k], v) for k, v in value.items())
        )
    if kind == "array":
        bounds = schema.get("minItems", 0) <= len(value) <= schema["maxItems"] if isinstance(value, list) else False
        return bounds and all(fits(schema["items"], v) for v in value)
    if kind == "string":
        return isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema["maxLength"]
    if kind == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    return value is None if kind == "null" else isinstance(value, bool)


def test_a_schema_is_kept_greedily_drawn_and_in_company(engine: Engine) -> None:
    requests = [ask("greedy", "json_schema", SCHEMA)]
    requests += [
        ask(f"drawn {i}", "json_schema", SCHEMA, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=i) for i in range(6)
    ]
    plain = Generate("plain", PROMPT, SamplingConfig(temperature=0.0, max_tokens=20), logprobs=2)
    outputs = answers(Crank(engine), [*requests, plain], late=2)
    for request in requests:
        assert outputs[request.id][-1].finish == "stop"
        assert fits(SCHEMA, json.loads(told(outputs[request.id])[2]))
    assert len({told(o)[2] for o in outputs.values()}) > 5
    with pytest.raises(ValueError, match="line"):
        json.loads(told(outputs["plain"])[2])
    alone = answers(Crank(engine), [requests[3]])
    assert told(alone[requests[3].id])[::2] == told(outputs[requests[3].id])[::2]  # seeds hold in any company


@st.composite
def leaves(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["integer", "string", "boolean", "null", "enum"]))
    if kind == "integer":
        low = draw(st.integers(-9, 9))
        return {"type": kind, "minimum": low, "maximum": draw(st.integers(low, 30))}
    if kind == "string":
        low = draw(st.integers(0, 3))
        return {"type": kind, "minLength": low, "maxLength": draw(st.integers(low, 5))}
    if kind == "enum":
        value = st.one_of(st.text(max_size=4), st.integers(-99, 99), st.booleans())
        return {"enum": draw(st.lists(value, min_size=1, max_size=3))}
    return {"type": kind}


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    @st.composite
    def branch(draw: st.DrawFn) -> dict[str, Any]:
        kind = draw(st.sampled_from(["array", "anyOf", "object"]))
        if kind == "array":
            low = draw(st.integers(0, 1))
            return {"type": kind, "items": draw(inner), "minItems": low, "maxItems": draw(st.integers(max(low, 1), 2))}
        if kind == "anyOf":
            return {kind: draw(st.lists(inner, min_size=1, max_size=2))}
        properties = draw(st.dictionaries(st.text(max_size=4), inner, max_size=3))
        required = [k for k in properties if draw(st.booleans())]
        return {"type": kind, "properties": properties, "required": required, "additionalProperties": False}

    return branch()


schemas = st.recursive(leaves(), branches, max_leaves=5)
finished: list[bool] = []


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(schemas, st.integers(0, 3))
def test_random_schemas(engine: Engine, schema: Any, seed: int) -> None:
    """Drawn at a high temperature, with drafts from the text itself: what ends by itself fits."""
    drawn = {"temperature": 2.0, "top_k": 0, "seed": seed} if seed else {}
    text, finish = one(engine, ask("x", "json_schema", schema, **drawn))
    finished.append(finish == "stop")
    assume(finished[-1])
    assert fits(schema, json.loads(text)), text


def test_most_random_schemas_were_finished() -> None:
    assert not finished or sum(finished) > 0.8 * len(finished)


class Foreseeing:
    """Guesses what will be said, now and then something that the grammar forbids."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def propose(self, wishes):
        out = []
        for wish in wishes:
            guess = self.tokens[len(wish.tokens) - len(PROMPT) :][: wish.most]
            out.append(guess if len(wish.tokens) % 3 else [*guess[:1], 7, *guess[2:]])
        return out

    def forget(self, id: str) -> None:
        pass


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_change_nothing(engine: Engine, temperature: float) -> None:
    request = ask("x", "json_schema", SCHEMA, temperature=temperature, seed=3)
    without = answers(Crank(engine, Foreseeing([]), Eager()), [request])["x"]
    tokens, chances, text = told(without)
    outputs = answers(Crank(engine, Foreseeing(tokens), Eager()), [request])["x"]
    assert told(outputs)[::2] == (tokens, text)
    assert outputs[-1].usage.accepted > 5
    assert [p for _, p in told(outputs)[1]] == pytest.approx([p for _, p in chances], abs=1e-4)


def test_what_is_forced_is_guessed(engine: Engine) -> None:
    """Without any proposer's help: the names of properties cost no steps of their own, and nothing else changes."""
    schema = {
        "type": "object",
        "properties": {"the weather in the north": {"type": "boolean"}},
        "required": ["the weather in the north"],
    }
    request = ask("x", "json_schema", schema | {"additionalProperties": False})
    outputs = answers(Crank(engine, Foreseeing([]), Eager()), [request])["x"]
    assert outputs[-1].usage.accepted >= 4
    session = engine.session()
    pieces = list(session.generate(PROMPT, request.sampling, request.grammar))
    session.end()
    assert "".join(p.text for p in pieces) == told(outputs)[2]
    assert pieces[-1].finish == outputs[-1].finish == "stop"


def test_log_probabilities_stay_the_models(engine: Engine) -> None:
    """The first token's are those that the model gives without a grammar."""
    bound = answers(Crank(engine), [ask("x", "json_object", "")])["x"]
    free = answers(Crank(engine), [Generate("x", PROMPT, SamplingConfig(temperature=0.0, max_tokens=1), logprobs=2)])["x"]
    first, other = bound[0].chances[0], free[0].chances[0]
    assert first.top == other.top
    assert first.token != other.token and first.logprob < other.logprob


@pytest.mark.parametrize(
    ("kind", "text", "pattern"),
    [
        ("regex", r"[a-c]{3}-\d{2}", r"[a-c]{3}-\d{2}"),
        ("lark", 'start: "the" (" cold" | " warm"){2}', r"the( cold| warm){2}"),
        ("gbnf", 'root ::= "answer: " ("yes" | "no") [0-9]{2}', r"answer: (yes|no)\d{2}"),
        ("json_object", "", r"(?s)\{.*"),
    ],
)
def test_other_kinds(engine: Engine, kind: str, text: str, pattern: str) -> None:
    for seed in range(3):
        said, finish = one(engine, ask("x", kind, text, temperature=1.0, seed=seed))
        assert re.fullmatch(pattern, said)
        assert finish == "stop" or kind == "json_object"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json_schema", '{"properties": {"a": {"items": {"not": {}}}}}', "'not' at #/properties/a/items"),
        ("json_schema", '{"type": "object"', "no JSON"),
        ("regex", "a(b", "regular expression cannot be used"),
        ("lark", "start: foo", "Lark grammar cannot be used.*foo"),
        ("gbnf", 'root ::= "a" | foo', "line 1, column 16"),
        ("xml", "", "no kind of grammar 'xml'"),
    ],
)
def test_refusals_are_told_and_others_go_on(engine: Engine, kind: str, text: str, message: str) -> None:
    crank = Crank(engine)
    assert not crank.take(Generate("other", PROMPT, SamplingConfig(temperature=0.0, max_tokens=3)))
    assert not crank.take(ask("x", kind, text))
    assert isinstance(crank.take(ask("x", kind, text))[0], Failed)  # the same id again
    replies = []
    while crank.busy:
        replies += crank.turn()
    failed = [r for r in replies if isinstance(r, Failed)]
    assert len(failed) == 1 and failed[0].kind == "request" and re.search(message, failed[0].message), failed
    assert [r.finish for r in replies if r.id == "other"][-1] == "length"


def test_cancelled_while_it_is_compiled(engine: Engine) -> None:
    crank = Crank(engine)
    crank.take(ask("x", "json_schema", SCHEMA))
    crank.take(Cancel("x"))
    assert not crank.busy and crank.turn() == []


def test_the_engine_listens_while_a_grammar_is_compiled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it has nothing else to do: another request may come, and this one may be cancelled."""
    compile, gate = engine.grammars.compile, threading.Event()
    monkeypatch.setattr(engine.grammars, "compile", lambda *grammar: gate.wait(20) and compile(*grammar))
    crank = Crank(engine)
    crank.take(ask("x", "json_schema", SCHEMA))
    try:
        started = time.monotonic()
        assert crank.turn() == []
        assert crank.busy and time.monotonic() - started < 10
        crank.take(Cancel("x"))
        assert not crank.busy
    finally:
        gate.set()


def test_ends_where_nothing_can_follow(engine: Engine) -> None:
    """Without a step for the end token; also when ends are ignored."""
    for ignore in (False, True):
        outputs = answers(Crank(engine), [ask("x", "regex", "the", ignore_eos=ignore)])["x"]
        assert (told(outputs)[2], outputs[-1].finish, outputs[-1].matched) == ("the", "stop", None)
