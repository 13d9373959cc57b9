"""Chat output parsing: each format's hand-written answers, at once and in any pieces; garbage; ids, tools, fingerprints."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.chat.parse import (
    FORMATS,
    Content,
    OutputParser,
    Reasoning,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    choose,
    gather,
    merged,
)
from tensormill.errors import TemplateError
from unit.chat_parse_cases import CASES as COMMON
from unit.chat_parse_cases import TOOLS, Case
from unit.chat_parse_more import MORE

CASES = COMMON | MORE
ALL = [(name, title, case) for name, cases in CASES.items() for title, case in cases.items()]
IDS = [f"{name}: {title}" for name, title, _ in ALL]
FILL = "абвгдежзийклмнопрстуфхцчшщ"  # letters of no marker: whatever happens, they must all come out


def parse(name, pieces, tools=TOOLS, **options):
    parser = OutputParser(name, tools, seed="7", **options)
    events = [e for piece in pieces for e in parser.push(piece)]
    return events + parser.finish()


def cut(text, rng):
    while text:
        n = rng.choice((1, 1, 2, 3, 5, 9, 30))
        yield text[:n]
        text = text[n:]


@pytest.mark.parametrize(("name", "title", "case"), ALL, ids=IDS)
def test_case(name: str, title: str, case: Case):
    whole = merged(parse(name, [case.text], continues=case.prompt))
    answer = gather(whole)
    assert [(c.name, json.loads(c.arguments)) for c in answer.calls] == list(case.calls)
    assert (answer.reasoning, answer.content) == (case.reasoning, case.content)
    assert merged(parse(name, case.text, continues=case.prompt)) == whole, "character by character"
    for seed in range(5):
        assert merged(parse(name, cut(case.text, random.Random(seed)), continues=case.prompt)) == whole, seed


def test_every_format_has_cases():
    assert set(CASES) == set(FORMATS)
    assert min(map(len, CASES.values())) >= 6


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text("ab <>{}[]|\"'\\\n/é🌍,:", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=6,
)
_arguments = st.dictionaries(st.text("abcdxyz_", min_size=1, max_size=6), _json, max_size=3)
_WRITERS = sorted(FORMATS)


def _plain(value: Any) -> Any:
    """A list or object with those of its values that a tree of tags cannot confuse with others."""
    clear = (int, type(None))
    if isinstance(value, list):
        return [v for v in value if isinstance(v, clear)]
    return {k: v for k, v in value.items() if isinstance(v, clear)} if isinstance(value, dict) else value


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(_WRITERS), st.lists(_arguments, min_size=1, max_size=3), st.integers(0, 999))
def test_what_is_written_is_read(name: str, calls: list, seed: int):
    """`Writing` and the patterns are each other's inverse (values that hold the format's own quotes cannot be written)."""
    form = FORMATS[name]
    if name == "harmony":
        calls = calls[:1]
    named = [(f"tool_{i}", a) for i, a in enumerate(calls)]
    kinds = {dict: "object", list: "array", bool: "boolean", int: "integer", str: "string", type(None): "null"}
    tools = [{"name": n, "parameters": {"properties": {k: {"type": kinds[type(v)]} for k, v in a.items()}}} for n, a in named]
    if form.writing.parameter:  # a line break at an edge of a value belongs to the tag
        named = [(n, {k: v.strip("\n") if isinstance(v, str) else v for k, v in a.items()}) for n, a in named]
    if form.writing.tree:  # what an inner value is, only its schema could tell
        named = [(n, {k: _plain(v) for k, v in a.items()}) for n, a in named]
    text = form.writing.calls(named)
    events = parse(name, cut(text, random.Random(seed)), tools)
    answer = gather(events)
    assert [(c.name, json.loads(c.arguments)) for c in answer.calls] == named
    assert not answer.content.strip()


def fragments(name: str) -> list[str]:
    texts = [case.text for case in CASES[name].values()]
    pieces = [text[i : i + n] for text in texts for n in (3, 8, 25) for i in range(0, len(text), n)]
    return sorted({*pieces, *FORMATS[name].keeps, "{", "}", '"', "\n", " ", "[", "]", ",", ":", *FILL[:4]})


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_garbage(data):
    """Nothing is raised, nothing depends on the pieces, and every letter that is no marker's comes out, in order."""
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    parts = data.draw(st.lists(st.sampled_from(fragments(name)) | st.text(FILL + "<|{} \n", max_size=5), max_size=14))
    text = "".join(parts)
    pieces = list(cut(text, random.Random(data.draw(st.integers(0, 99)))))
    for tools in (TOOLS, None, []):
        events = merged(parse(name, [text], tools))
        assert merged(parse(name, pieces, tools)) == events
        answer = gather(events)
        out = answer.reasoning + answer.content + "".join(c.name + c.arguments + c.id for c in answer.calls)
        assert Counter(c for c in text if c in FILL) <= Counter(out)
        starts = [e.index for e in events if isinstance(e, ToolCallStart)]
        assert starts == list(range(len(starts)))
        assert sorted(e.index for e in events if isinstance(e, ToolCallEnd)) == starts
        for call in answer.calls:
            assert isinstance(json.loads(call.arguments), dict)


def mutants(name: str, rng: random.Random, count: int):
    """Answers of a format, cut, doubled, spliced and peppered with letters."""
    texts = [case.text for case in CASES[name].values() if case.text]
    for _ in range(count):
        text = rng.choice(texts)
        for _ in range(rng.randrange(1, 5)):
            i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            other = rng.choice(texts)
            text = rng.choice(
                (text[:i] + text[j:], text[:j] + text[i:], text[:i] + rng.choice(FILL) + text[i:], text[:i] + other + text[i:])
            )
        yield text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_mutants(name: str):
    check = random.Random(name)
    for text in mutants(name, check, 60):
        events = merged(parse(name, [text]))
        assert merged(parse(name, cut(text, check))) == events, text
        for call in gather(events).calls:
            assert isinstance(json.loads(call.arguments), dict), text


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.text("ab \n.,:;!?()*#_+=-é🌍中", max_size=60), st.integers(0, 99))
def test_plain_text_comes_back(name: str, text: str, seed: int):
    events = merged(parse(name, cut(text, random.Random(seed))))
    assert events == ([Content(text)] if text else [])


def test_no_tools_no_calls():
    text = CASES["hermes"]["one"].text
    assert gather(parse("hermes", [text], [])).content == text
    assert len(gather(parse("hermes", [text], None)).calls) == 1


def test_raw_reasoning_is_text():
    assert gather(parse("hermes", ["<think>a</think>b"], reasoning="raw")).content == "<think>a</think>b"
    assert merged(parse("hermes", ["a</think>b"], reasoning="open")) == [Reasoning("a"), Content("b")]


def test_arguments_stream():
    parser = OutputParser("hermes", TOOLS, seed="1")
    events = parser.push('Hi <tool_call>\n{"name": "weather", "arguments": {"ci')
    assert events[0] == Content("Hi") and isinstance(events[1], ToolCallStart)
    assert events[2] == ToolCallArguments(0, '{"ci')
    assert parser.push('ty": "Pa') == [ToolCallArguments(0, 'ty": "Pa')]
    parameters = OutputParser("minimax", TOOLS, seed="1")
    head = '<minimax:tool_call><invoke name="weather"><parameter name="city">Paris</parameter>'
    events = parameters.push(head + '<parameter name="days">')
    assert ToolCallArguments(0, '{"city": "Paris"') in events


def test_holds_back_only_what_may_be_a_tag():
    parser = OutputParser("hermes", TOOLS)
    assert parser.push("a < b") == [Content("a < b")]
    assert parser.push(" <tool") == []
    assert parser.push("s>") == [Content(" <tools>")]


def test_broken_call_that_had_begun():
    text = '<tool_call>{"name": "now", "arguments": {"a": oops}}</tool_call>'
    events = merged(parse("hermes", [text]))
    assert isinstance(events[0], ToolCallStart)
    assert events[-2:] == [ToolCallEnd(0, broken=True), Content(text)]


def test_ids():
    kimi = parse("kimi", [CASES["kimi"]["two"].text])
    assert [e.id for e in kimi if isinstance(e, ToolCallStart)] == ["functions.weather:0", "functions.now:1"]
    mistral = parse("mistral", [CASES["mistral"]["new"].text])
    ids = [e.id for e in mistral if isinstance(e, ToolCallStart)]
    assert len({*ids}) == 2 and all(len(i) == 9 and i.isalnum() for i in ids)
    given_id = parse("mistral", [CASES["mistral"]["with id"].text])
    assert [e.id for e in given_id if isinstance(e, ToolCallStart)] == ["abcdefghi"]


def test_long_garbage_is_not_slow():
    parser = OutputParser("hermes", TOOLS)
    for _ in range(2000):
        parser.push('<tool_call>{"name": "<tool_call>')
    for _ in range(3000):
        parser.push("\n")
    parser.finish()


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{% if '</think>' in c %}<tool_call>\n{\"name\": ", "hermes"),
        ("<tool_call>\n<function=x>\n<parameter=y>", "qwen-xml"),
        ("<|start_header_id|>{{ role }}<|end_header_id|> <|python_tag|>", "llama3"),
        ("[INST] [TOOL_CALLS]", "mistral"),
        ("<｜Assistant｜><｜tool▁calls▁begin｜>", "deepseek"),
        ("<｜Assistant｜> ｜DSML｜", "dsml"),
        ("<|turn>model\n<|tool_call>call:", "gemma4"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("<|start|>assistant to=user<|message|><|eot|>", "muse"),
        ("<tool_call>{{ name }}<arg_key>", "glm"),
        ("<|tool_calls_section_begin|>", "kimi"),
        ("<minimax:tool_call>", "minimax"),
        ("<TOOLCALL>[", "nemotron"),
        ("]<]minimax[>[<tool_call>", "minimax-m3"),
        ("<start_of_turn>model\n", "plain"),
        ("<|im_start|>assistant\n<think>\n", "think"),
    ],
)
def test_fingerprints(template: str, name: str):
    assert choose(template).name == name


def test_unknown_format():
    with pytest.raises(TemplateError, match="hermes"):
        OutputParser("hermse")
