"""Requests of Anthropic's and Ollama's clients → the internal request; Go's template notation; durations."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensormill.server.anthropic import asking as anthropic
from tensormill.server.anthropic.fields import CountRequest, MessagesRequest
from tensormill.server.ollama import asking as ollama
from tensormill.server.ollama.fields import ChatRequest
from tensormill.server.ollama.gotemplate import rendered
from tensormill.server.problem import Problem
from tensormill.server.request import Ask


def claude(**body: Any) -> Ask:
    return anthropic.ask(msgspec.convert({"max_tokens": 9, "messages": [], **body}, MessagesRequest))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_blocks_become_turns() -> None:
    answer = [
        {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "redacted_thinking", "data": "…"}, text("a"),
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1}}, {"type": "tool_use", "id": "t2", "name": "run"},
    ]  # fmt: skip
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "seen"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [text("no"), text("way")], "is_error": True},
        text("go on"),
    ]
    asked = claude(
        system=[text("s1"), text("s2")],
        messages=[
            {
                "role": "user",
                "content": [text("u"), {"type": "document", "title": "T", "source": {"type": "text", "data": "D"}}],
            },
            {"role": "assistant", "content": answer},
            {"role": "user", "content": results},
        ],
    )
    assert asked.messages == [
        {"role": "system", "content": "s1\ns2"},
        {"role": "user", "content": "u\nT\nD"},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": {"x": 1}}},
                {"id": "t2", "type": "function", "function": {"name": "run", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "seen"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no\nway"},
        {"role": "user", "content": "go on"},
    ]
    assert not asked.continue_final and asked.thinking is False


TOOL = {"name": "look", "description": "d", "input_schema": {"type": "object"}, "strict": True, "cache_control": {}}


@pytest.mark.parametrize(
    ("choice", "wanted", "parallel"),
    [
        (None, "auto", True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "tool", "name": "look"}, "=look", True),
        ({"type": "none"}, "none", True),
    ],
)
def test_tools_and_their_choice(choice: Any, wanted: str, parallel: bool) -> None:
    asked = claude(tools=[TOOL], tool_choice=choice)
    assert (asked.tool_choice, asked.parallel_tool_calls) == (wanted, parallel)
    function = {"name": "look", "description": "d", "parameters": {"type": "object"}, "strict": True}
    assert asked.tools == [{"type": "function", "function": function}]


def test_how_to_answer() -> None:
    asked = claude(
        max_tokens=5, temperature=0.5, top_k=4, top_p=0.9, stop_sequences=["x"], thinking={"type": "adaptive"},
        output_config={"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    )  # fmt: skip
    assert asked.sampling == {"max_tokens": 5, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "stop": ("x",)}
    assert asked.thinking is True and asked.template_values == {"reasoning_effort": "high"}
    assert asked.grammar and (asked.grammar.kind, msgspec.json.decode(asked.grammar.text)) == (
        "json_schema",
        {"type": "object"},
    )
    assert not anthropic.ask(CountRequest(messages=[])).sampling
    assert claude(messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]).continue_final


def test_results_find_their_calls_by_the_tool() -> None:
    calls = [{"function": {"name": n, "arguments": {}}} for n in ("a", "b", "b")]
    results = [{"role": "tool", "tool_name": n, "content": n} for n in ("b", "a", "b", "c")]
    body = {"messages": [{"role": "assistant", "tool_calls": calls}, *results]}
    asked = ollama.chat(msgspec.convert(body, ChatRequest))
    assert asked.messages is not None
    ids = [c["id"] for c in asked.messages[0]["tool_calls"]]
    assert [m.get("tool_call_id") for m in asked.messages[1:]] == [ids[1], ids[0], ids[2], None]


def test_options_under_our_names() -> None:
    body = {
        "options": {"num_predict": 3, "repeat_last_n": 7, "stop": "x", "seed": 1, "typical_p": 1.0, "num_ctx": 99, "tfs_z": 1}
    }
    asked = ollama.chat(msgspec.convert(body, ChatRequest))
    assert asked.sampling == {"max_tokens": 3, "penalty_window": 7, "stop": ("x",), "seed": 1}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0.0),
        (2.5, 2.5),
        ("10", 10),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("300ms", 0.3),
        (-1, math.inf),
        ("-1m", math.inf),
    ],
)
def test_durations(given: Any, seconds: float) -> None:
    assert ollama.duration(given) == pytest.approx(seconds)


@pytest.mark.parametrize("given", ["", "soon", "5 m", "m", "5m!", "nan", "1h-3m"])
def test_no_durations(given: str) -> None:
    with pytest.raises(Problem, match="keep_alive"):
        ollama.duration(given)


VALUES = {"System": "S", "Prompt": "P"}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{{ .System }} {{ .Prompt }}", "S P"),
        ("a \n{{- .Prompt -}}\n b", "aPb"),
        ("{{/* no */}}{{ if .System }}<{{ .System }}>{{ end }}{{ .Prompt }}:{{ .Response }}!", "<S>P:"),
        ("{{ if .Suffix }}1{{ else if .System }}2{{ else }}3{{ end }}", "2"),
        ("{{ if and .System (not .Suffix) }}1{{ else }}2{{ end }}", "1"),
        ('{{ if or .Suffix (eq .Prompt "Q" "P") }}1{{ end }}{{ "\\n" }}{{ `\\n` }}', "1\n\\n"),
        ("{{ if .Suffix }}{{ if .System }}1{{ else }}2{{ end }}{{ else }}{{ if ne .System .Prompt }}3{{ end }}{{ end }}", "3"),
        ("{{ if .Suffix }}{{ .Response }}{{ end }}x", "x"),
        ("plain } {", "plain } {"),
    ],
)
def test_go_templates(template: str, wanted: str) -> None:
    assert rendered(template, VALUES) == wanted


@pytest.mark.parametrize(
    "template",
    [
        "{{ range .Messages }}{{ end }}", "{{ .Messages }}", "{{ $x := .Prompt }}", "{{ end }}", "{{ else }}",
        '{{ .Prompt " }}', "{{ if .Prompt }}", "{{ .Prompt | json }}", "{{ .Prompt", "{{ if }}{{ end }}", "{{ not }}",
        "{{ (.Prompt }}", "{{ }}", "{{ .Prompt.X }}",
        "{{ if .Prompt }}{{ else }}{{ else }}{{ end }}", "{{ if .Prompt }}{{ else with }}{{ end }}", '{{ "x }}',
        "{{ if .Prompt }}" * 99, "{{ " + "(" * 99,
    ],
)  # fmt: skip
def test_templates_that_are_refused(template: str) -> None:
    with pytest.raises(Problem, match="template: "):
        rendered(template, VALUES)


@given(
    st.lists(st.sampled_from(["{{", "}}", "-", " ", "if", "else", "end", ".Prompt", ".System", "(", ")", '"', "`", "and", "x"]))
)
def test_no_template_breaks_the_server(pieces: list[str]) -> None:
    with suppress(Problem):
        rendered("".join(pieces), VALUES)
