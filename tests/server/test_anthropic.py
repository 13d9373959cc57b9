"""Anthropic's API, black box: the official client against a live server whose model says what its script says."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message, ToolUseBlock

from server.live import ENDLESS, Live
from server.scripted import CONTEXT

TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
STRICT = {**TOOL, "input_schema": CITY, "strict": True}
HI = [{"role": "user", "content": "Hi!"}]
GREETING = "Hello there, my friend…!"


@pytest.fixture(scope="module")
def claude(scripted: Live) -> anthropic.Anthropic:
    return client(scripted)


def client(live: Live, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(**{"base_url": live.url, "api_key": "none", "max_retries": 0, "timeout": 60, **more})


def ask(claude: anthropic.Anthropic, *, stream: bool = False, **more: Any) -> Message:
    """An answer, the same way whole or streamed."""
    rest = {name: more.pop(name) for name in ("temperature", "top_k", "top_p") if name in more}  # not in this client
    asked = {"model": "scripted", "max_tokens": 64, "messages": HI, "extra_body": rest, **more}
    if not stream:
        return claude.messages.create(**asked)
    with claude.messages.stream(**asked) as events:
        return events.get_final_message()


def blocks(message: Message) -> list[dict[str, Any]]:
    wanted = ("type", "text", "thinking", "name", "input")
    return [{k: v for k, v in b.model_dump().items() if k in wanted} for b in message.content]


both = pytest.mark.parametrize("stream", [False, True])


@both
def test_an_answer(claude: anthropic.Anthropic, stream: bool) -> None:
    message = ask(claude, stream=stream, system="Be kind.")
    assert blocks(message) == [{"type": "text", "text": GREETING}]
    assert (message.type, message.role, message.model) == ("message", "assistant", "scripted")
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.id.startswith("msg_") and message.usage.output_tokens == 4 and message.usage.input_tokens > 0


def test_events_come_in_order(claude: anthropic.Anthropic) -> None:
    events = list(claude.messages.create(model="actor", max_tokens=64, messages=HI, tools=[TOOL], stream=True))
    kinds = [e.type for e in events]
    short = [k for i, k in enumerate(kinds) if k != "content_block_delta" or kinds[i - 1] != k]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert short == ["message_start", *block, *block, "message_delta", "message_stop"]
    assert [e.index for e in events if e.type == "content_block_start"] == [0, 1]
    arguments = [e.delta.partial_json for e in events if e.type == "content_block_delta" and e.index == 1]
    assert len(arguments) > 1 and json.loads("".join(arguments)) == {"city": "Paris"}
    assert events[-2].delta.stop_reason == "tool_use" and events[-2].usage.output_tokens == 4


def test_each_event_is_named(scripted: Live) -> None:
    body = {"model": "", "max_tokens": 8, "messages": HI, "stream": True}
    answer = httpx.post(scripted.url + "/v1/messages", json=body, timeout=60)
    assert answer.headers["content-type"].startswith("text/event-stream")
    for event in answer.text.strip().split("\n\n"):
        name, data = event.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


@both
def test_tools_over_two_turns(claude: anthropic.Anthropic, stream: bool) -> None:
    first = ask(claude, stream=stream, tools=[TOOL])
    assert blocks(first) == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "name": "get_weather", "input": {"city": "Paris"}},
    ]
    assert first.stop_reason == "tool_use"
    call = first.content[1]
    assert isinstance(call, ToolUseBlock)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "18 °C"}]}
    turns = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = ask(claude, stream=stream, tools=[TOOL], messages=turns)
    assert blocks(second) == [{"type": "text", "text": "It is 18 degrees in Paris!"}]
    assert second.stop_reason == "end_turn"


@both
def test_calls_in_parallel_or_not(claude: anthropic.Anthropic, stream: bool) -> None:
    turns = [{"role": "user", "content": "both, please"}]
    two = ask(claude, stream=stream, tools=[TOOL], messages=turns)
    assert [b["input"]["city"] for b in blocks(two)] == ["Oslo", "Rome"]
    choice = {"type": "any", "disable_parallel_tool_use": True}
    one = ask(claude, stream=stream, tools=[STRICT], messages=turns, tool_choice=choice, max_tokens=300)
    assert [b["input"].keys() for b in blocks(one)] == [{"city"}]


def test_a_call_that_is_cut_off_is_text(claude: anthropic.Anthropic) -> None:
    message = ask(claude, tools=[TOOL], max_tokens=2)
    assert [b["type"] for b in blocks(message)] == ["text"] and '"get_weather"' in blocks(message)[0]["text"]
    assert message.stop_reason == "max_tokens"
    streamed = ask(claude, tools=[TOOL], max_tokens=2, stream=True)  # the call had been announced by then
    assert [b["type"] for b in blocks(streamed)] == ["text", "tool_use", "text"] and '"get_weather"' in blocks(streamed)[2][
        "text"
    ]
    assert streamed.stop_reason == "max_tokens"


@both
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_call_can_be_demanded(claude: anthropic.Anthropic, stream: bool, choice: Any) -> None:
    turns = [{"role": "user", "content": "quiet"}]
    assert blocks(ask(claude, stream=stream, tools=[STRICT], messages=turns)) == [{"type": "text", "text": "No tools today."}]
    message = ask(claude, stream=stream, tools=[STRICT], tool_choice=choice, messages=turns, max_tokens=300)
    calls = [b for b in blocks(message) if b["type"] == "tool_use"]
    assert calls and all(c["name"] == "get_weather" and c["input"]["city"] in ("Oslo", "Rome") for c in calls)
    assert message.stop_reason == "tool_use"


def test_no_tools_are_shown_if_none_may_be_used(claude: anthropic.Anthropic) -> None:
    message = ask(claude, tools=[TOOL], tool_choice={"type": "none"})
    assert blocks(message) == [{"type": "text", "text": GREETING}]


@both
def test_thinking(claude: anthropic.Anthropic, stream: bool) -> None:
    message = ask(claude, stream=stream, thinking={"type": "enabled", "budget_tokens": 1024})
    thought = {"type": "thinking", "thinking": "The user greets me."}
    assert [{**b, **({"thinking": b["thinking"].strip()} if "thinking" in b else {})} for b in blocks(message)] == [
        thought, {"type": "text", "text": "Good day!"}
    ]  # fmt: skip
    details = message.usage.output_tokens_details
    assert details and 2 <= details.thinking_tokens < message.usage.output_tokens
    again = [*HI, {"role": "assistant", "content": message.content}, {"role": "user", "content": "And?"}]
    assert blocks(ask(claude, stream=stream, messages=again)) == [{"type": "text", "text": GREETING}]
    short = ask(claude, stream=stream, thinking={"type": "enabled", "budget_tokens": 1})
    assert blocks(short)[0]["thinking"] == "The user" and blocks(short)[1]["text"] == "Good day!"
    hidden = ask(claude, stream=stream, thinking={"type": "adaptive", "display": "omitted"})
    assert blocks(hidden)[0] == {"type": "thinking", "thinking": ""} and len(hidden.content) == 2
    assert blocks(ask(claude, stream=stream, thinking={"type": "disabled"})) == [{"type": "text", "text": GREETING}]


@both
def test_what_ends_an_answer(claude: anthropic.Anthropic, stream: bool) -> None:
    stopped = ask(claude, stream=stream, stop_sequences=["zzz", "friend"], temperature=0.5, top_k=3, top_p=0.9)
    assert blocks(stopped) == [{"type": "text", "text": "Hello there, my "}]
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "friend")
    nothing = ask(claude, stream=stream, max_tokens=0)
    assert (blocks(nothing), nothing.stop_reason, nothing.usage.output_tokens) == ([], "max_tokens", 0)
    cut = ask(claude, stream=stream, max_tokens=2)
    assert blocks(cut) == [{"type": "text", "text": "Hello there,"}]
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


def test_an_answer_is_continued(claude: anthropic.Anthropic) -> None:
    message = ask(claude, messages=[*HI, {"role": "assistant", "content": "Hello there,"}])
    assert blocks(message) == [{"type": "text", "text": " my friend…!"}]


def test_structured_output(claude: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"sure": {"type": "boolean"}, "mood": {"enum": ["good", "bad"]}},
        "required": ["sure", "mood"],
        "additionalProperties": False,
    }
    message = ask(claude, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=200)
    made = json.loads(blocks(message)[0]["text"])
    assert made.keys() == {"sure", "mood"} and made["mood"] in ("good", "bad") and isinstance(made["sure"], bool)


@both
def test_tools_and_structured_output_together(claude: anthropic.Anthropic, stream: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"warm": {"type": "boolean"}},
        "required": ["warm"],
        "additionalProperties": False,
    }
    asked = {"stream": stream, "tools": [STRICT], "output_config": {"format": {"type": "json_schema", "schema": schema}}}
    made = ask(claude, **asked, tool_choice={"type": "any"}, max_tokens=300)
    calls = [b for b in made.content if isinstance(b, ToolUseBlock)]
    assert calls and calls[0].input["city"] in ("Oslo", "Rome")  # type: ignore[index]
    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "18 degrees"}
    turns = [*HI, {"role": "assistant", "content": [calls[0].model_dump()]}, {"role": "user", "content": [result]}]
    answer = ask(claude, **asked, messages=turns, tool_choice={"type": "none"}, max_tokens=300)
    assert json.loads(blocks(answer)[-1]["text"]).keys() == {"warm"}


def test_a_stream_that_is_closed_is_computed_no_further(live: Live) -> None:
    ended = live.metric("request_success_total")
    form = {"format": {"type": "json_schema", "schema": ENDLESS}}
    asked = {"model": "tiny", "max_tokens": 8000, "messages": HI, "output_config": form}
    with client(live).messages.create(**asked, stream=True) as events:
        assert next(iter(events)).type == "message_start"
    live.until("num_requests_running", 0)
    assert live.metric("kv_pages_held") == 0 and live.metric("request_success_total") == ended


def test_tokens_are_counted_as_they_are_spent(claude: anthropic.Anthropic) -> None:
    long = [{"type": "text", "text": "You are patient. " * 20, "cache_control": {"type": "ephemeral"}}]
    counted = claude.messages.count_tokens(model="scripted", messages=HI, system=long, tools=[TOOL]).input_tokens
    for _ in range(2):
        usage = ask(claude, system=long, tools=[TOOL]).usage
        assert counted == usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert usage.cache_read_input_tokens > 200 and usage.cache_creation_input_tokens == 0
    with claude.messages.stream(model="scripted", max_tokens=9, messages=HI, system=long, tools=[TOOL]) as events:
        streamed = events.get_final_message().usage
    assert (streamed.input_tokens, streamed.cache_read_input_tokens) == (usage.input_tokens, usage.cache_read_input_tokens)


REFUSED = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]}, "'image'"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]}, "tool_use_id"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "'other'"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"thinking": {"type": "sometimes"}}, "'sometimes'"),
    ({"thinking": {"type": "enabled"}}, "budget_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 7}, "top_p"),
    ({"output_config": {"format": {"type": "xml"}}}, "'xml'"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "tool"}}}}, "'type'"),
    ({"output_config": {"effort": "heroic"}}, "'heroic'"),
    ({"messages": [{"role": "user", "content": "x" * 2 * CONTEXT}]}, str(CONTEXT)),
]


@pytest.mark.parametrize(("change", "told"), REFUSED)
@both
def test_refusals(claude: anthropic.Anthropic, change: dict[str, Any], told: str, stream: bool) -> None:
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(claude, stream=stream, **change)
    body = refused.value.body
    assert isinstance(body, dict) and body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error" and told in body["error"]["message"]
    assert refused.value.request_id


def test_max_tokens_is_required(scripted: Live) -> None:
    answer = httpx.post(scripted.url + "/v1/messages", json={"model": "scripted", "messages": HI})
    assert answer.status_code == 400 and "max_tokens" in answer.json()["error"]["message"]


def test_other_errors_have_their_types(claude: anthropic.Anthropic, scripted: Live) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        ask(claude, model="claude-of-another-house")
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.RequestTooLargeError) as large:
        ask(claude, messages=[{"role": "user", "content": "x" * 300_000}])
    assert large.value.body["error"]["type"] == "request_too_large"  # type: ignore[index]
    nowhere = httpx.get(scripted.url + "/v1/messages/batches")
    assert nowhere.status_code == 404 and nowhere.json()["error"]["type"] == "not_found_error"


def test_keys_of_both_kinds(guarded: Live) -> None:
    for more in ({"api_key": "open-sesame"}, {"api_key": None, "auth_token": "open-sesame"}):
        assert blocks(ask(client(guarded, **more)))[0]["text"] == GREETING
        assert client(guarded, **more).messages.count_tokens(model="scripted", messages=HI).input_tokens > 0
    with pytest.raises(anthropic.AuthenticationError) as refused:
        ask(client(guarded, api_key="poppy"))
    assert refused.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]


def test_models(claude: anthropic.Anthropic) -> None:
    assert [m.id for m in claude.models.list()] == ["scripted", "actor"]
    assert [m.id for m in claude.models.list(limit=1)] == ["scripted", "actor"]  # two pages
    assert [m.id for m in claude.models.list(before_id="actor", limit=1).data] == ["scripted"]
    one = claude.models.retrieve("actor")
    assert one.type == "model" and one.max_input_tokens == CONTEXT and one.created_at.year > 2000
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.models.retrieve("nothing")
    assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError, match="after_id"):
        claude.models.list(after_id="nothing")
