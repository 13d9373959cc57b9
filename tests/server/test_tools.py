"""Tools and reasoning over OpenAI's API, with a model that says what a script says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest

from server.live import Live, serving
from server.scripted import TEMPLATE, write_scripted

TOOL = {
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": TOOL}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
STRICT = [{"type": "function", "function": {**TOOL, "parameters": {**CITY, "additionalProperties": False}, "strict": True}}]
REPORT = {
    "type": "object",
    "properties": {"warm": {"type": "boolean"}},
    "required": ["warm"],
    "additionalProperties": False,
}
QUESTION = {"role": "user", "content": "How is the weather in Paris?"}
THINK = {"chat_template_kwargs": {"enable_thinking": True}}


@pytest.fixture(scope="session")
def actor(scripted: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=scripted.url + "/v1", api_key="none", max_retries=0, timeout=60)


def chat(actor: openai.OpenAI, messages: list[Any], **more: Any) -> Any:
    return actor.chat.completions.create(model="actor", messages=messages, temperature=0, **more)


def test_a_tool_is_called_and_its_result_answered(actor: openai.OpenAI) -> None:
    first = chat(actor, [QUESTION], tools=TOOLS).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.content == "I look."
    (call,) = first.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    second = chat(actor, [QUESTION, first.message.model_dump(exclude_none=True), result], tools=TOOLS).choices[0]
    assert second.message.content == "It is 18 degrees in Paris!"
    assert second.finish_reason == "stop"
    assert second.message.tool_calls is None


def test_arguments_stream_as_they_come(actor: openai.OpenAI) -> None:
    deltas = [c.choices[0] for c in chat(actor, [QUESTION], tools=TOOLS, stream=True)]
    calls = [d.delta.tool_calls[0] for d in deltas if d.delta.tool_calls]
    assert calls[0].function.name == "get_weather"
    assert calls[0].id
    assert len(calls) > 2
    assert json.loads("".join(c.function.arguments for c in calls)) == {"city": "Paris"}
    assert "".join(d.delta.content or "" for d in deltas) == "I look."
    assert deltas[-1].finish_reason == "tool_calls"


def test_two_calls_or_only_one(actor: openai.OpenAI) -> None:
    both = [{"role": "user", "content": "both"}]
    calls = chat(actor, both, tools=TOOLS).choices[0].message.tool_calls
    assert [json.loads(c.function.arguments)["city"] for c in calls] == ["Oslo", "Rome"]
    assert len({c.id for c in calls}) == 2
    one = chat(actor, both, tools=STRICT, parallel_tool_calls=False, tool_choice="required", max_tokens=300).choices[0]
    assert [json.loads(c.function.arguments).keys() for c in one.message.tool_calls] == [{"city"}]


def test_a_call_can_be_required_or_forbidden(actor: openai.OpenAI) -> None:
    none_at_all = {"type": "object", "properties": {}, "additionalProperties": False}
    other = {"type": "function", "function": {"name": "other", "parameters": none_at_all}}
    named = {"type": "function", "function": {"name": "other"}}
    forced = chat(actor, [QUESTION], tools=[*TOOLS, other], tool_choice=named, max_tokens=300).choices[0].message
    assert forced.tool_calls[-1].function.name == "other"  # off its script it thinks first, of all kinds of calls
    assert json.loads(forced.tool_calls[-1].function.arguments) == {}
    required = chat(actor, [QUESTION], tools=TOOLS, tool_choice="required", max_tokens=100).choices[0].message
    assert required.tool_calls[0].function.name == "get_weather"
    none = chat(actor, [QUESTION], tools=TOOLS, tool_choice="none").choices[0].message
    assert none.tool_calls is None
    assert none.content == "Hello there, my friend…!"
    with pytest.raises(openai.BadRequestError, match="nothing"):
        chat(actor, [QUESTION], tools=TOOLS, tool_choice={"type": "function", "function": {"name": "nothing"}})


@pytest.mark.parametrize("stream", [False, True])
def test_tools_and_a_schema_for_the_answer_together(actor: openai.OpenAI, stream: bool) -> None:
    """Two turns: a call while tools are wanted, then an answer that is bound to a schema, tools and all."""
    form = {"type": "json_schema", "json_schema": {"name": "report", "schema": REPORT, "strict": True}}

    def ask(messages: list[Any], **more: Any) -> Any:
        made = chat(actor, messages, tools=STRICT, response_format=form, max_tokens=300, stream=stream, **more)
        return joined(made) if stream else made.choices[0].message

    call = ask([QUESTION], tool_choice="required").tool_calls[0]
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    made = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": call.function.arguments}}
    turns = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [made]}]
    answer = ask([*turns, {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}])
    free = answer.tool_calls or []  # it may call again: what is not called must be a report
    assert all(c.function.name == "get_weather" for c in free)
    assert free or json.loads(answer.content).keys() == {"warm"}
    none = ask([QUESTION], tool_choice="none")
    assert json.loads(none.content).keys() == {"warm"} and not none.tool_calls


def joined(chunks: Any) -> Any:
    """The message of a stream."""
    content, calls = "", list[Any]()
    for delta in (c.choices[0].delta for c in chunks):
        content += delta.content or ""
        for part in delta.tool_calls or []:
            if part.id:
                calls.append(part)
            else:
                calls[part.index].function.arguments += part.function.arguments
    return SimpleNamespace(content=content, tool_calls=calls)


def test_a_stream_that_is_closed_is_computed_no_further(actor: openai.OpenAI, scripted: Live) -> None:
    ended = scripted.metric("request_success_total")
    with chat(actor, [QUESTION], stream=True, max_tokens=8000, extra_body={"ignore_eos": True}) as stream:
        assert [next(stream).choices[0].index for _ in range(3)] == [0, 0, 0]
        assert scripted.metric("num_requests_running") == 1
    scripted.until("num_requests_running", 0)
    assert scripted.metric("kv_pages_held") == 0
    assert scripted.metric("request_success_total") == ended


def test_reasoning_is_told_apart_and_counted(actor: openai.OpenAI) -> None:
    whole = chat(actor, [QUESTION], extra_body=THINK)
    assert whole.choices[0].message.reasoning_content == "The user greets me."
    assert whole.choices[0].message.content == "Good day!"
    assert whole.usage.completion_tokens_details.reasoning_tokens > 0
    chunks = list(chat(actor, [QUESTION], extra_body=THINK, stream=True))
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks)
    assert thought == "The user greets me."


@pytest.mark.parametrize(
    ("budget", "thought"), [(0, ""), (1, "The user"), (2, "The user greets me."), (9, "The user greets me.")]
)
def test_reasoning_ends_where_its_budget_does(actor: openai.OpenAI, budget: int, thought: str) -> None:
    whole = chat(actor, [QUESTION], extra_body={**THINK, "thinking_budget": budget})
    assert (getattr(whole.choices[0].message, "reasoning_content", None) or "") == thought
    assert whole.choices[0].message.content == "Good day!"
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": STRICT[0]["function"]["parameters"], "strict": True}}
    bound = chat(actor, [QUESTION], extra_body={**THINK, "thinking_budget": budget}, response_format=form, max_tokens=300)
    assert json.loads(bound.choices[0].message.content)["city"] in ("Oslo", "Rome")
    assert (getattr(bound.choices[0].message, "reasoning_content", None) or "") == thought


def test_reasoning_can_be_switched_off(actor: openai.OpenAI) -> None:
    for off in ({"reasoning_effort": "none"}, {"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
        assert chat(actor, [QUESTION], extra_body=off).choices[0].message.content == "Hello there, my friend…!"
    on = chat(actor, [QUESTION], extra_body={"enable_thinking": True}).choices[0].message
    assert on.reasoning_content == "The user greets me."


@pytest.mark.parametrize(("effort", "thought"), [("minimal", ""), ("low", "The user"), ("high", "The user greets me.")])
def test_an_effort_is_a_share_of_the_answer_where_the_template_knows_none(
    actor: openai.OpenAI, effort: str, thought: str
) -> None:  # fmt: skip
    def reasoning(message: Any) -> str:
        assert message.content == "Good day!"
        return getattr(message, "reasoning_content", None) or ""

    assert reasoning(chat(actor, [QUESTION], reasoning_effort=effort, max_tokens=9).choices[0].message) == thought
    made = actor.responses.create(
        model="actor", input="x", reasoning={"effort": effort}, max_output_tokens=9, temperature=0
    )  # fmt: skip
    assert made.output_text == "Good day!" and (made.output[0].type == "reasoning") is bool(thought)
    free = {"thinking_budget": 100}  # what was said in tokens holds
    whole = chat(actor, [QUESTION], reasoning_effort=effort, max_tokens=9, extra_body=free).choices[0].message
    assert reasoning(whole) == "The user greets me."


def test_a_template_that_knows_efforts_is_left_to_it(tmp_path: Path) -> None:
    path = write_scripted(tmp_path / "knows.gguf", TEMPLATE.replace("<|im_start|>assistant", "{{ reasoning_effort }}", 1))
    with serving(path) as live:
        client = openai.OpenAI(base_url=live.url + "/v1", api_key="none", max_retries=0, timeout=60)
        made = client.chat.completions.create(
            model="knows", messages=[QUESTION], reasoning_effort="minimal", max_tokens=9, temperature=0
        )  # fmt: skip
        assert made.choices[0].message.reasoning_content == "The user greets me."
        with pytest.raises(openai.BadRequestError, match="reasoning_effort must be none, minimal, low"):
            client.chat.completions.create(model="knows", messages=[QUESTION], reasoning_effort="much")


def test_tools_of_a_template_that_knows_none(live: Live, client: openai.OpenAI) -> None:
    """A ChatML template without tools: they are told in words, and a call can be required all the same."""
    assert httpx.get(live.url + "/props", timeout=30).json()["chat_template_tools"] is False
    shown = httpx.post(live.url + "/apply-template", json={"messages": [QUESTION], "tools": TOOLS}, timeout=30).json()["prompt"]
    assert shown.startswith("<|im_start|>system\nYou can call these tools") and json.dumps(TOOL) in shown
    made = client.chat.completions.create(
        model="tiny", messages=[QUESTION], tools=STRICT, tool_choice="required", max_tokens=500, temperature=0
    )
    (call,) = made.choices[0].message.tool_calls
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")


def test_responses_have_items_for_reasoning_and_calls(actor: openai.OpenAI) -> None:
    tool = {"type": "function", **TOOL, "strict": False}
    made = actor.responses.create(model="actor", input="How is the weather?", tools=[tool], temperature=0)
    assert [o.type for o in made.output] == ["message", "function_call"]
    call = made.output[1]
    assert json.loads(call.arguments) == {"city": "Paris"}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "18"}
    again = actor.responses.create(
        model="actor", input=[output], previous_response_id=made.id, tools=[tool], temperature=0
    )  # fmt: skip
    assert again.output_text == "It is 18 degrees in Paris!"
    by_items = [{"role": "user", "content": "How is the weather?"}, *(o.model_dump() for o in made.output), output]
    assert actor.responses.create(model="actor", input=by_items, tools=[tool], temperature=0).output_text == again.output_text
    events = list(actor.responses.create(model="actor", input="x", stream=True, extra_body=THINK, temperature=0))
    assert "response.reasoning_text.delta" in {e.type for e in events}
    assert [o.type for o in events[-1].response.output] == ["reasoning", "message"]
    assert events[-1].response.output_text == "Good day!"


def test_thirty_thousand_characters_of_tools(actor: openai.OpenAI, scripted_file: Path) -> None:
    """Strict ones: of 60 tools each has a schema of its own, objects within objects, and all 30000 characters are schema."""
    schemas = [
        {
            "type": "object",
            "properties": {
                "city": {"enum": [f"city {i}.{j}" for j in range(10)]},
                "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": i + 7}, "maxItems": 3},
                "about": {
                    "type": "object",
                    "properties": {f"field_{i}_{j}": {"type": ("boolean", "null")[j % 2]} for j in range(8)},
                    "required": [f"field_{i}_0"],
                    "additionalProperties": False,
                },
            },
            "required": ["city", "about"],
            "additionalProperties": False,
        }
        for i in range(60)
    ]
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": schema, "strict": True}}
        for i, schema in enumerate(schemas)
    ]
    assert len(json.dumps(schemas)) > 30_000
    with pytest.raises(openai.BadRequestError, match="context"):
        chat(actor, [QUESTION], tools=tools)
    with serving(scripted_file, flags=("--ctx", "65536", "--alias", "actor")) as roomy:
        client = openai.OpenAI(base_url=roomy.url + "/v1", api_key="none", max_retries=0, timeout=60)
        made = chat(client, [QUESTION], tools=[*tools, *STRICT], tool_choice="required", max_tokens=2000).choices[0]
        assert made.finish_reason == "tool_calls"
        for call in made.message.tool_calls:
            assert call.function.name == "get_weather" or is_of_tool(int(call.function.name[5:]), call)
        named = {"type": "function", "function": {"name": "tool_59"}}
        forced = chat(client, [QUESTION], tools=tools, tool_choice=named, max_tokens=2000).choices[0].message.tool_calls
        assert forced[-1].function.name == "tool_59"
        assert is_of_tool(59, forced[-1])


def is_of_tool(i: int, call: Any) -> bool:
    """Whether arguments are what the schema of the i-th of those tools says."""
    given = json.loads(call.function.arguments)
    about = given["about"]
    fine = given.keys() <= {"city", "days", "about"} and given["city"] in [f"city {i}.{j}" for j in range(10)]
    fine &= all(0 <= day <= i + 7 for day in given.get("days", [])) and len(given.get("days", [])) <= 3
    return fine and f"field_{i}_0" in about and about.keys() <= {f"field_{i}_{j}" for j in range(8)}
