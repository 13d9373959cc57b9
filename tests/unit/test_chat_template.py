"""Chat templates: what real and built-in ones render, Hugging Face's conventions, and the errors a user meets."""
# ruff: noqa: E501  (templates read best on one line)

import json
from datetime import datetime
from pathlib import Path

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tensormill.chat import FORMATS, ChatTemplate
from tensormill.chat.builtin import choose
from tensormill.chat.sandbox import Program
from tensormill.errors import TemplateError
from tensormill.gguf import GGUFFile

SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Héllo <b>&amp;</b>"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Sum 1 and 2"},
]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "zwei <ü>"}}}
TOOL_TALK = [
    {"role": "user", "content": "Sum 1 and 2"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "3", "tool_call_id": "c1"},
]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object"}}}]


def template(source: str, **options: str) -> ChatTemplate:
    return ChatTemplate(source, bos="<s>", eos="</s>", **options)


def user(source: str, **extra: object) -> str:
    return template(source).render([{"role": "user", "content": "hi"}], **extra)


def jinja_alone(source: str, **variables: object) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source).render(**variables)


def test_smollm() -> None:
    assert template(SMOLLM).render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template(SMOLLM).render(TALK, add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHéllo <b>&amp;</b><|im_end|>\n"
        "<|im_start|>assistant\nHi.<|im_end|>\n<|im_start|>user\nSum 1 and 2<|im_end|>\n"
    )


@pytest.mark.real
@pytest.mark.parametrize("file", ["SmolLM2-135M-Instruct.Q4_1", "qwen2.5-coder-0.5b-instruct-q4_k_m"])
def test_real_templates_render_as_in_plain_jinja(file: str) -> None:
    path = Path.home() / ".cache/tensormill/test-models" / f"{file}.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is absent: `make models` fetches it")
    with GGUFFile(path) as opened:
        source = opened.metadata.str("tokenizer.chat_template")
    knows = "tool_calls" in source  # else tools and calls are told as text
    for messages in (TALK, TALK[1:], TOOL_TALK) if knows else (TALK, TALK[1:]):
        for tools in (None, TOOLS) if knows else (None,):
            for prompt in (True, False):
                variables = {"messages": messages, "tools": tools, "add_generation_prompt": prompt}
                ours = template(source).render(messages, tools=tools, add_generation_prompt=prompt)
                assert ours == jinja_alone(source, bos_token="<s>", eos_token="</s>", **variables)


SNIPPETS = [
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.last }} {{ loop.cycle('a', 'b') }}\n{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ m.content }}{% if loop.first %}{% continue %}{% endif %}!{% endfor %}",
    "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m }}{% else %}none{% endfor %}",
    "{% set ns = namespace(n=0, found=false) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% macro show(m, mark='-') %}{{ mark }}{{ m.role }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}"
    "{{ show(messages[0]) }}{{ show(messages[1], mark='*') }}{% call show(messages[2]) %}inner{% endcall %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}<{{ loop(x) }}>{% else %}{{ x }}{% endif %}{% endfor %}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(' | ') }}",
    "{{ messages[::-1][0].content }} {{ messages[1:][0]['role'] }} {{ 'abcdef'[1:-1:2] }} {{ messages[-1].content[:3] }}",
    "{{ messages|rejectattr('role', 'in', ['system', 'tool'])|list|length }}",
    "{{ 'x' if messages[0].nothing else 'y' }}{{ nothing }}{{ nothing is defined }}{{ messages[0].nothing is none }}",
    "{{ 1 < 2 < 3 }}{{ 3 > 2 > 2 }}{{ 'a' in 'abc' }}{{ 'z' not in ['a'] }}{{ 'role' in messages[0] }}{{ 7 // 2 }}{{ 7 % 4 }}",
    "{{ '%s-%05.1f' % ('a', 1.25) }}{{ '%s'|format('b') }}{{ '{} {x:>5}'.format(1, x='r') }}{{ 'a' ~ 1 ~ none ~ [1] }}",
    "{{ ' a '|trim ~ '|' }}{{ 'a\nb'|indent(2) }}{{ 'abc'|replace('b', 'X') }}{{ 'abc'.replace('b', 'Y') }}{{ 'a,b'.split(',') }}",
    "{% set x %}block {{ messages[0].role }}{% endset %}{{ x|upper }}{% filter lower %}ABC{% endfilter %}{{ x is string }}",
    "{{ tools[0].function|tojson }}{{ tools|tojson(indent=2) if false }}{{ (1, 2) }}{{ {'a': [1, none, true]} }}",
    "{{ messages|groupby('role')|map('first')|list }}{{ [3, 1, 2]|sort }}{{ [1, 2]|sum }}{{ [[1], [2]]|sum(start=[]) }}",
    "{{ messages[0].items()|list }}{% for k, v in messages[0]|items %}{{ k }}={{ v }};{% endfor %}{{ messages[0].get('z', 'd') }}",
    "{{ range(3)|list }}{{ range(5)|batch(2, 'x')|list }}{{ range(5)|slice(2)|list }}{{ 'abc'|list|reverse|join }}",
    "  {%- if true %}\n    a\n  {%- endif %}\n  b\n{#- c #}\n  {% if true %}\nkept\n  {% endif %}\n{{- ' d' -}}\n e",
    "{{ 'it'|title }}{{ 'A b'|lower|capitalize }}{{ 2.5|round(1) }}{{ '7'|int + 1 }}{{ -3|abs }}{{ 'a b'|wordcount }}{{ 'x'|center(5) }}",
    "{{ messages|map(attribute='role')|unique|list }}{{ messages|map('length')|list }}{{ nothing|default('d') }}{{ ''|d('e', true) }}",
    "{% set a, b = 1, 2 %}{{ a + b }}{% with c = 3 %}{{ c }}{% endwith %}{{ [1, 2]|max }}{{ 5 is divisibleby 5 }}{{ 2 ** 10 }}",
    "{% set j = joiner(', ') %}{% for i in [1, 2] %}{{ j() }}{{ i }}{% endfor %}{% set c = cycler(1, 2) %}{{ c.next() }}{{ c.next() }}",
    "{{ '<think>a</think>b'.split('</think>')[-1].lstrip('\n') }}{{ 'ab'.startswith('a') }}{{ 'x'.ljust(3) ~ '|' }}{{ 'a'.join(['1', '2']) }}",
]  # fmt: skip


@pytest.mark.parametrize("source", SNIPPETS)
def test_guards_change_no_meaning(source: str) -> None:
    expected = jinja_alone(source, messages=TALK, tools=TOOLS)
    assert Program(source).render({"messages": TALK, "tools": TOOLS}) == expected


def test_conventions() -> None:
    assert user("{{ bos_token }}{% generation %}{{ messages[0].content }}{% endgeneration %}{{ eos_token }}") == "<s>hi</s>"
    assert user("{{ strftime_now('%d %b %Y') }}", now=datetime(2026, 11, 3)) == "03 Nov 2026"
    assert user("{{ x|tojson }}", x={"b": "é<>&'", "a": [1.5, None, True]}) == '{"b": "é<>&\'", "a": [1.5, null, true]}'
    assert user("{{ [1]|tojson(indent=2) }}{{ {'b': 1, 'a': 2}|tojson(sort_keys=True, separators=(',', ':')) }}") == (
        '[\n  1\n]{"a":2,"b":1}'
    )
    assert user("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking }}") == "TrueTrueTrue"
    assert user("{{ enable_thinking }}{{ tools }}", enable_thinking=False, tools=[]) == "FalseNone"
    assert user("{% for d in documents %}{{ d.text }}{% endfor %}", documents=[{"text": "doc"}]) == "doc"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", "line 1: roles must alternate"),
        ("\n\n{{ messages[0].content.nothing.more }}", "line 3: 'str object' has no attribute 'nothing'"),
        ("\n{{ messages[0].content + 1 }}", "line 2: TypeError"),
        ("{{ strftime_now('%' + '9' * 9 + 'd') }}", "strftime_now cannot use the format"),
        ("{{ messages|urlize }}", "broken in line 1: No filter named 'urlize'"),
        ("{% if %}", "broken in line 1"),
        ("a\n{% include 'x' %}", "broken in line 2: a chat template cannot load other templates"),
        ("{{ nothing() }}", "'nothing' is undefined"),
        ("{{ messages[0].content.encode() }}", "may not call str.encode"),
    ],
)
def test_errors_say_where(source: str, words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        user(source)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "messages", [[{"content": "x"}], [{"role": "user", "content": 3}], ["hi"], [{"role": "user", "x": object()}]]
)
def test_malformed_messages(messages: list[object]) -> None:
    with pytest.raises(TemplateError):
        template(SMOLLM).render(messages)  # type: ignore[arg-type]


def test_parts_are_joined_for_templates_of_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in template(SMOLLM).render([{"role": "user", "content": parts}])
    with pytest.raises(TemplateError, match="text only, not a part of type 'image_url'"):
        template(SMOLLM).render([{"role": "user", "content": [{"type": "image_url"}]}])


def test_templates_of_parts_get_parts() -> None:
    source = "{% for m in messages %}{% for p in m.content %}<{{ p.type }}:{{ p.text }}>{% endfor %}{% endfor %}"
    assert template(source).render([{"role": "user", "content": "hi"}]) == "<text:hi>"
    both = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}!{% endif %}{% endfor %}"
    assert template(both).render([{"role": "user", "content": "hi"}]) == "hi"
    assert template(both).render([{"role": "user", "content": [{"type": "text", "text": "hi"}]}]) == "hi!"


def test_arguments_come_as_the_template_wants_them() -> None:
    text = {"function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [text]}]
    objects = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}"
    assert template(objects).render(messages) == 'x{"a": 1}'
    strings = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ '' + c.function.arguments }}{% endfor %}{% endfor %}"
    assert template(strings).render(messages) == 'x{"a": 1}'
    messages[1]["tool_calls"] = [{"function": {"name": "f", "arguments": {"a": 1}}}]
    assert template(strings).render(messages) == 'x{"a": 1}'


def test_system_text_goes_to_the_user_where_there_is_no_system_role() -> None:
    made = ChatTemplate.from_metadata({"tokenizer.ggml.tokens": ["<start_of_turn>", "<end_of_turn>"]}, bos="<bos>", eos="")
    assert made.name == "gemma"
    assert made.render(TALK[:2]) == (
        "<bos><start_of_turn>user\nBe brief.\n\nHéllo <b>&amp;</b><end_of_turn>\n<start_of_turn>model\n"
    )


def test_named_templates() -> None:
    metadata = {
        "tokenizer.chat_template": "default",
        "tokenizer.chat_template.tool_use": "tools",
        "tokenizer.chat_template.rag": "rag",
    }
    made = ChatTemplate.from_metadata(metadata, bos="", eos="")
    message = [{"role": "user", "content": "x"}]
    assert made.render(message) == "default"
    assert made.render(message, tools=TOOLS) == "tools"
    assert ChatTemplate.from_metadata(metadata, bos="", eos="", name="rag").render(message, tools=TOOLS) == "rag"
    assert "<|im_start|>user" in ChatTemplate.from_metadata(metadata, bos="", eos="", name="chatml").render(message)
    with pytest.raises(TemplateError, match="no chat template 'none'; choose one of: default, tool_use, rag, chatml"):
        ChatTemplate.from_metadata(metadata, bos="", eos="", name="none")
    with pytest.raises(TemplateError, match=r"broken in line 1.*--template NAME uses another: chatml"):
        ChatTemplate.from_metadata({"tokenizer.chat_template": "{% if %}"}, bos="", eos="")


@pytest.mark.parametrize("name", FORMATS)
def test_built_in_formats(name: str) -> None:
    form = FORMATS[name]
    assert choose([*form.markers, "hello"]) == name
    text = ChatTemplate.from_metadata({}, bos="<s>", eos="</s>", name=name).render(TALK)
    places = [text.index(message["content"]) for message in TALK]
    assert places == sorted(places)
    assert text.endswith(form.generation)
    assert text.startswith("<s>") == ("{bos}" in form.begin)
    assert "{" not in text


def test_built_in_texts() -> None:
    def render(name: str) -> str:
        return ChatTemplate.from_metadata({}, bos="<s>", eos="</s>", name=name).render(TALK[1:])

    assert render("plain") == "<s>User: Héllo <b>&amp;</b>\nAssistant: Hi.\nUser: Sum 1 and 2\nAssistant:"
    assert render("mistral-v3") == "<s>[INST] Héllo <b>&amp;</b>[/INST] Hi.</s>[INST] Sum 1 and 2[/INST]"
    assert render("deepseek") == "<s><｜User｜>Héllo <b>&amp;</b><｜Assistant｜>Hi.</s><｜User｜>Sum 1 and 2<｜Assistant｜>"


def test_render_does_not_touch_the_messages() -> None:
    messages = json.loads(json.dumps(TOOL_TALK))
    messages[1]["tool_calls"][0]["function"]["arguments"] = '{"a": 1}'
    copy = json.loads(json.dumps(messages))
    template("{% for m in messages %}{{ m }}{% endfor %}").render(messages)
    assert messages == copy
