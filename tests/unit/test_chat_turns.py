"""Histories with tools in the shapes that templates want: calls, results, ids, old shapes, templates without tools."""

# ruff: noqa: E501  (templates read best on one line)

from __future__ import annotations

import copy
import json

import pytest

from tensormill.chat import ChatTemplate
from tensormill.errors import TemplateError

CALL = {"id": "call_0123456789abcdef", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TALK = [
    {"role": "user", "content": "Sum"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": [{"type": "text", "text": "3"}], "tool_call_id": CALL["id"]},
]
CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments"
    " | tojson }}]{% endfor %}{% if m.role == 'tool' %}={{ m.name }}{% endif %}{{ '\n' }}{% endfor %}"
)
TEXT_ARGUMENTS = CHATML.replace("c.function.arguments | tojson", "'' + c.function.arguments")
NULL_ONLY = (  # shows calls only where the content is none
    "{% for m in messages %}<{{ m.role }}>{% if m.content is none %}{% for c in m.tool_calls %}[{{ c.function.name ~ c.function.arguments }}]"
    "{% endfor %}{% else %}{{ m.content }}{% endif %}{{ '\n' }}{% endfor %}"
)
NINE = (
    "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}"
    + (
        "{{ c.id }}{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id }}{% endif %}{{ m.content }}\n{% endfor %}"
    )
)
NO_TOOLS = (  # turns alternate, no system, no tools
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}\n{% endfor %}"
)


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}}}}]


def render(source: str, messages: list, **more: list) -> str:
    before = copy.deepcopy(messages)
    text = ChatTemplate(source).render(messages, **more)
    assert messages == before, "the caller's messages are left alone"
    return text


def test_arguments_in_the_shape_wanted():
    assert render(CHATML, TALK) == '<user>Sum\n<assistant>[add {"a": 1}]\n<tool>3=add\n'
    text = copy.deepcopy(TALK)
    text[1]["tool_calls"][0]["function"]["arguments"] = {"a": 1}
    assert render(TEXT_ARGUMENTS, text) == '<user>Sum\n<assistant>[add {"a": 1}]\n<tool>3=add\n'


def test_content_that_does_not_hide_calls():
    talk = copy.deepcopy(TALK)
    talk[1]["content"] = ""
    assert "[add" in render(NULL_ONLY, talk)


def test_short_ids_stay_equal():
    lines = render(NINE, TALK).splitlines()
    assert lines[1][:9] == lines[2][:9] and lines[1][:9].isalnum()
    kept = copy.deepcopy(TALK)
    kept[1]["tool_calls"][0]["id"] = kept[2]["tool_call_id"] = "abcdefghi"
    assert render(NINE, kept).count("abcdefghi") == 2


def test_old_function_calls():
    old = [
        TALK[0],
        {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "add", "content": "3"},
    ]
    assert render(CHATML, old) == render(CHATML, TALK)


def test_results_find_their_calls():
    two = [
        {"role": "assistant", "tool_calls": [{"name": "a", "arguments": {}}, {"name": "b", "arguments": None}]},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": None},
    ]
    source = CHATML.replace("<{{ m.role }}>", "<{{ m.role }} {{ m.tool_call_id }}>")
    assert render(source, two) == "<assistant >[a {}][b {}]\n<tool call00000>1=a\n<tool call00001>=b\n"


def test_tools_are_told_in_words_where_the_template_cannot():
    text = render(NO_TOOLS, TALK, tools=TOOLS)
    before, _, after = text.partition("\n\nSum\n")  # there is no system role either
    assert before.startswith("<user>You can call these tools")
    (schema,) = (line for line in before.splitlines() if line.startswith("{") and "parameters" in line)
    assert json.loads(schema) == TOOLS[0]["function"]
    example = '<tool_call>\n{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}\n</tool_call>\n'
    assert example in before
    assert after == ('<assistant><tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n<user>Result of add:\n3\n')
    brief = [{"role": "system", "content": "Be brief."}, *TALK]
    assert render(NO_TOOLS, brief, tools=TOOLS).startswith("<user>Be brief.\n\nYou can call these tools")


def test_a_template_without_tools():
    assert (
        render(NO_TOOLS, TALK)
        == '<user>Sum\n<assistant>{"name": "add", "arguments": "{\\"a\\": 1}"}\n<user>Result of add:\n3\n'
    )


def test_turns_alternate_where_they_must():
    talk = [{"role": "developer", "content": "S"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert render(NO_TOOLS, talk) == "<user>S\n\na\n\nb\n"
    assert render(CHATML, talk[1:]) == "<user>a\n<user>b\n"


def test_reasoning_under_each_name():
    source = "{% for m in messages %}{{ m.reasoning_content }}{{ m.thinking }}{{ m.reasoning }}{{ m.content }}{% endfor %}"
    assert render(source, [{"role": "assistant", "content": "x", "reasoning": "r"}]) == "rrrx"


def test_tool_calls_must_be_a_list():
    with pytest.raises(TemplateError, match="tool_calls of message 0"):
        ChatTemplate(CHATML).render([{"role": "assistant", "content": "", "tool_calls": "x"}])
