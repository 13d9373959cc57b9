"""/v1/responses through the official client."""

from __future__ import annotations

from typing import Any

import openai
import pytest

QUICK: dict[str, Any] = {"model": "tiny", "max_output_tokens": 8, "temperature": 1.0, "extra_body": {"seed": 5}}


def test_a_response_is_continued_by_its_id(client: openai.OpenAI) -> None:
    first = client.responses.create(input="hello", instructions="be brief", **QUICK)
    assert first.object == "response"
    assert first.usage.output_tokens <= 8
    second = client.responses.create(input="and then?", previous_response_id=first.id, **QUICK)
    assert second.previous_response_id == first.id
    history = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": first.output_text}]
    told = client.responses.create(input=[*history, {"role": "user", "content": "and then?"}], store=False, **QUICK)
    assert told.output_text == second.output_text  # instructions are not carried over
    assert told.usage.input_tokens == second.usage.input_tokens


def test_stored_responses_are_found_and_forgotten(client: openai.OpenAI) -> None:
    made = client.responses.create(input="hello", **QUICK)
    assert client.responses.retrieve(made.id).output_text == made.output_text
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    unkept = client.responses.create(input="hello", store=False, **QUICK)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(input="more", previous_response_id=unkept.id, **QUICK)


def test_events_come_in_order_and_join_to_the_response(client: openai.OpenAI) -> None:
    events = list(client.responses.create(input="hello", stream=True, **QUICK))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    kinds = [e.type for e in events]
    assert kinds[:4] == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"
    ]  # fmt: skip
    assert kinds[-4:-1] == ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
    final = events[-1].response
    joined = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert joined == final.output_text == client.responses.create(input="hello", **QUICK).output_text
    assert client.responses.retrieve(final.id).output_text == joined


def test_the_client_s_own_stream_helper_agrees(client: openai.OpenAI) -> None:
    with client.responses.stream(input="hello", **{**QUICK, "max_output_tokens": 4000}) as stream:
        joined = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert stream.get_final_response().output_text == joined != ""


def test_calls_and_their_outputs_are_taken_as_items(client: openai.OpenAI) -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "seen"},
    ]
    made = client.responses.create(input=items, tools=[tool], **QUICK)
    assert made.tools[0].name == "look"
    assert made.output_text


def test_what_is_not_understood_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="web_search"):
        client.responses.create(input="x", tools=[{"type": "web_search"}], **QUICK)
    part = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}
    with pytest.raises(openai.BadRequestError, match="input_image"):
        client.responses.create(input=[{"role": "user", "content": [part]}], **QUICK)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.create(input="x", background=True, **QUICK)
