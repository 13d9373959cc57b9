"""Grammars of chat formats: what a format writes canonically passes, what was not asked for does not; in a real vocabulary."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from engine.bpe_engine import tokenizer
from tensormill.chat.constrain import Wanted, constrain
from tensormill.chat.constrain.frames import frame
from tensormill.chat.parse import FORMATS, Format, OutputParser, gather
from tensormill.errors import RequestError
from tensormill.sampling.grammar import Grammars

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["C", "F"]},
        "deep": {"$ref": "#/$defs/deep"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"deep": {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}},
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}},
    {"name": "now", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
]
PARIS = ("weather", {"city": "Paris 🌧️", "days": 3, "unit": "C", "deep": {"x": True}})
ROME = ("weather", {"city": "Rome", "deep": {"x": False}})
NOW: tuple[str, dict] = ("now", {})
CALLING = list(FORMATS.values())
MESSAGES = ("harmony", "muse")  # every call is a message of its own


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(tokenizer())


def prompt(form: Format) -> str:
    return frame(form).inner


def calls(form: Format, made: list[tuple[str, Any]]) -> str:
    text = form.writing.calls(made)
    return frame(form).calls.replace("{name}", made[0][0]) + text


def thought(form: Format) -> str:
    reasoning = frame(form).reasoning
    return reasoning[0] + "\nHm, <tool> { perhaps?\n" + reasoning[1] if reasoning else ""


def content(form: Format, text: str) -> str:
    begin, end = frame(form).content
    return begin + text + end


def passes(grammars: Grammars, form: Format, text: str, **wanted: Any) -> str:
    """How far a text gets: refused, begun, complete (it may end here) or closed (it must)."""
    continues = wanted.pop("continues", prompt(form))
    grammar = constrain(form, tokenizer(), Wanted(**({"tools": TOOLS} | wanted)), continues)
    assert grammar
    matcher = grammars.compile(*grammar)
    ids = tokenizer().encode(text, parse_special=True)
    while ids and ids[-1] in tokenizer().end_ids:
        ids.pop()
    fits = matcher.fits(ids)
    if fits < len(ids):
        return "refused"
    for token in ids:
        matcher.accept(token)
    return "closed" if matcher.closed else "complete" if matcher.complete else "begun"


@pytest.mark.parametrize("form", CALLING, ids=lambda f: f.name)
class TestEveryFormat:
    def test_calls_as_the_format_writes_them(self, grammars: Grammars, form: Format) -> None:
        for choice in ("auto", "required"):
            for before in ("", thought(form)):
                for made in (PARIS, ROME, NOW):
                    assert passes(grammars, form, before + calls(form, [made]), choice=choice) in ("complete", "closed"), made
            if form.name not in MESSAGES:
                assert passes(grammars, form, calls(form, [PARIS, NOW, ROME]), choice=choice) in ("complete", "closed")
                assert passes(grammars, form, calls(form, [PARIS, NOW]), choice=choice, parallel=False) == "refused"
        assert passes(grammars, form, calls(form, [NOW]), parallel=False) == "closed"

    def test_a_prompt_that_has_opened_reasoning(self, grammars: Grammars, form: Format) -> None:
        reasoning = frame(form).reasoning
        if reasoning is None or not form.thinks:
            return
        text = "Hm.\n" + reasoning[1]
        assert passes(grammars, form, text, continues=f"… {reasoning[0]}\n", choice="required") == "begun"
        assert passes(grammars, form, text + calls(form, [NOW]), continues=reasoning[0], choice="required") in (
            "complete",
            "closed",
        )

    def test_what_is_no_call_is_refused(self, grammars: Grammars, form: Format) -> None:
        good = calls(form, [ROME])
        for bad in (good.replace("weather", "whether"), good.replace("alse", "maybe"), good.replace("city", "town")):
            assert bad != good and passes(grammars, form, bad, choice="required") == "refused"
            if form.name != "llama3":  # there what is no call is text
                assert passes(grammars, form, content(form, "So: ") * (not frame(form).content[0]) + bad) == "refused"

    def test_no_call_hides_in_reasoning(self, grammars: Grammars, form: Format) -> None:
        begin, end = frame(form).reasoning or ("", "")
        hidden = begin + "Hm.\n" + form.writing.calls([NOW]) + "\nSo." + end
        parser = OutputParser(form, TOOLS, continues=prompt(form))
        if not begin or not gather(parser.push(hidden) + parser.finish()).calls:
            return
        for choice in ("auto", "required"):
            assert passes(grammars, form, hidden + calls(form, [ROME]), choice=choice) == "refused"

    def test_named(self, grammars: Grammars, form: Format) -> None:
        wanted = {"choice": "named", "name": "now"}
        assert passes(grammars, form, calls(form, [NOW]), **wanted) == "closed"
        assert passes(grammars, form, calls(form, [ROME]), **wanted) == "refused"

    def test_text(self, grammars: Grammars, form: Format) -> None:
        text = content(form, "It is cold, {and} [dark] <b>there</b>.")
        assert passes(grammars, form, text) in ("complete", "closed")
        assert passes(grammars, form, thought(form) + text) in ("complete", "closed")
        assert passes(grammars, form, text, choice="required") == "refused"
        if not frame(form).content[0] and form.name != "llama3":
            assert passes(grammars, form, text + "\n" + calls(form, [PARIS])) in ("complete", "closed")
            assert passes(grammars, form, text + "\n" + calls(form, [PARIS]) + "x y") == "refused"

    def test_content_of_a_form(self, grammars: Grammars, form: Format) -> None:
        response = (
            "json_schema",
            '{"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false}',
        )
        for tools in (TOOLS, []):
            for before in ("", thought(form)):
                good, bad = (before + content(form, t) for t in ('{"a": 1}', '{"b": 1}'))
                assert passes(grammars, form, good, response=response, tools=tools) in ("complete", "closed")
                assert passes(grammars, form, bad, response=response, tools=tools) == "refused"
        assert passes(grammars, form, calls(form, [NOW]), response=response) in ("complete", "closed")
        assert passes(grammars, form, calls(form, [NOW]), response=response, choice="none") == "refused"

    def test_no_reasoning(self, grammars: Grammars, form: Format) -> None:
        if thought(form):
            assert passes(grammars, form, thought(form) + calls(form, [NOW]), choice="required", reasoning=False) == "refused"
        assert passes(grammars, form, calls(form, [NOW]), choice="required", reasoning=False) in ("complete", "closed")


def test_nothing_wanted_is_no_grammar() -> None:
    assert constrain(FORMATS["hermes"], tokenizer(), Wanted()) is None
    assert constrain(FORMATS["hermes"], tokenizer(), Wanted(TOOLS, "none")) is None
    assert constrain(FORMATS["plain"], tokenizer(), Wanted(response=("regex", "a"))) == ("regex", "a")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(choice="required"), "no tools"),
        (Wanted(TOOLS, "named", "then"), "'then'.*no such tool"),
        (Wanted(TOOLS, "perhaps"), "'perhaps'"),
        (Wanted([{"type": "function"}], "auto"), "no name"),
        (Wanted([{"name": "a", "parameters": 3}], "auto"), "'a'.*JSON schema"),
    ],
)
def test_refusals(wanted: Wanted, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        constrain(FORMATS["hermes"], tokenizer(), wanted)


def strict(schema: Any, strict: bool = True) -> list[dict[str, Any]]:
    return [{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}, "required": ["a"]}, "strict": strict}]


@pytest.mark.parametrize("name", ["hermes", "qwen-xml", "gemma4"])
def test_strict_tools_are_kept_or_refused_others_loosened(grammars: Grammars, name: str) -> None:
    form, odd = FORMATS[name], {"type": "integer", "not": {"const": 3}}
    if name == "qwen-xml":
        assert constrain(form, tokenizer(), Wanted(strict({"type": "string"})))
        with pytest.raises(RequestError, match=r"tool 'f', 'a': the keyword 'pattern'"):
            constrain(form, tokenizer(), Wanted(strict({"type": "string", "pattern": "^a"})))
    with pytest.raises(RequestError, match=r"tool 'f'.*'not'"):
        grammars.compile(*constrain(form, tokenizer(), Wanted(strict(odd))))
    for value, expected in ((7, True), ("x", False)):
        text = form.writing.calls([("f", {"a": value})])
        assert (passes(grammars, form, text, tools=strict(odd, False), choice="required") != "refused") is expected


def many_tools(size: int) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    while len(json.dumps(tools)) < size:
        n = len(tools)
        fields = {
            f"field_{n}_{i}": {"type": ("string", "integer", "boolean")[i % 3], "description": "what it is " * 4}
            for i in range(6)
        }
        fields["kind"] = {"enum": [f"kind {n} {i}" for i in range(5)]}
        fields["items"] = {
            "type": "array",
            "items": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        }
        schema = {"type": "object", "properties": fields, "required": ["kind", f"field_{n}_1"], "additionalProperties": False}
        tools.append({"type": "function", "function": {"name": f"tool_{n}", "parameters": schema, "strict": True}})
    return tools


@pytest.mark.parametrize("name", ["hermes", "qwen-xml"])
def test_thirty_thousand_characters_of_tools(grammars: Grammars, name: str) -> None:
    tools, form = many_tools(30_000), FORMATS[name]
    started = time.thread_time()
    grammar = constrain(form, tokenizer(), Wanted(tools, "required"))
    assert grammar
    matcher = grammars.compile(*grammar)
    assert time.thread_time() - started < 1.0
    for token in tokenizer().encode(form.writing.calls([("tool_7", {"field_7_1": 5, "kind": "kind 7 3"})]), parse_special=True):
        matcher.accept(token)
    assert matcher.complete
