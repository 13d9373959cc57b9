"""Errors: their status, their shape, and that they name what is wrong."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from server.live import CONTEXT, Live

USER = [{"role": "user", "content": "hi"}]


def refused(live: Live, body: object, path: str = "/v1/chat/completions", status: int = 400) -> dict[str, Any]:
    answer = httpx.post(live.url + path, json=body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": USER, "temperature": "hot"}, "temperature"),
        ({"messages": USER, "temperature": -1}, "temperature"),
        ({"messages": USER, "top_p": 7}, "top_p"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": []}, "messages"),
        ({}, "messages"),
        ({"messages": USER, "n": 0}, "n"),
        ({"messages": USER, "top_logprobs": 3}, "top_logprobs"),
        ({"messages": USER, "tool_choice": "must"}, "tool_choice"),
        ({"messages": USER, "response_format": {"type": "poem"}}, "response_format"),
        ({"messages": USER, "stop": [""]}, "stop"),
        ({"messages": USER, "seed": 1 << 70}, "seed"),
        ({"messages": USER, "timeout": -1}, "timeout"),
        ({"messages": USER, "stop": ["x"] * 129}, "stop"),
        ({"messages": USER, "dry_multiplier": 1, "dry_breakers": ["x" * 9000]}, "dry_breakers"),
        ({"messages": USER, "functions": [{"name": "f"}]}, "functions"),
        ({"messages": USER, "n": 128}, "n"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
    ],
)
def test_a_wrong_field_is_named(live: Live, body: object, param: str) -> None:
    assert refused(live, body)["param"] == param


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"max_tokens": 1 << 64}, "max_tokens"),
        ({"min_tokens": 1 << 64}, "min_tokens"),
        ({"priority": 1 << 70}, "priority"),
        ({"logit_bias": {"1000000": 1}}, "token 1000000"),
        ({"response_format": {"type": "regex", "grammar": "[^\\s\\S]"}}, "no text at all"),
    ],
)
def test_what_is_refused_is_refused_before_a_stream_begins(live: Live, body: dict[str, Any], word: str) -> None:
    assert word in refused(live, {"prompt": "a", "stream": True, **body}, "/v1/completions")["message"]


def test_a_refusal_is_no_echo(live: Live) -> None:
    wrong = {"prompt": "a", "logit_bias": {**{str(i): 1 for i in range(20_000)}, "7": 1e9}}
    assert "(7, 1000000000.0)" in refused(live, wrong, "/v1/completions")["message"]
    answer = httpx.post(live.url + "/v1/completions", json={"prompt": "a", "model": "x" * 50_000})
    assert (answer.status_code, len(answer.content) < 3000) == (404, True)


def test_no_json(live: Live) -> None:
    answer = httpx.post(live.url + "/v1/chat/completions", content=b'{"messages": [')
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


def test_one_token_more_than_the_context_is_refused_with_numbers(live: Live, client: openai.OpenAI) -> None:
    error = refused(live, {"prompt": [97] * (CONTEXT + 1)}, "/v1/completions")
    assert error["code"] == "context_length_exceeded"
    assert str(CONTEXT) in error["message"]
    assert str(CONTEXT + 1) in error["message"]
    fits = client.completions.create(model="tiny", prompt=[97] * CONTEXT, max_tokens=4)
    assert fits.usage.completion_tokens == 1
    assert fits.choices[0].finish_reason == "length"


def test_what_cannot_fit_is_refused_before_it_is_tokenized(live: Live) -> None:
    long = "x" * (CONTEXT * len("<|fim_prefix|>"))  # the longest token's text
    for body in ({"prompt": long + "x"}, {"prompt": "x", "suffix": long}):
        assert f"at least {CONTEXT + 1}" in refused(live, body, "/v1/completions")["message"]
    chat = refused(live, {"messages": [{"role": "user", "content": long}]})
    assert (chat["code"], "at least" in chat["message"]) == ("context_length_exceeded", True)
    assert "at least" in refused(live, {"input": ["x", long + "x"]}, "/v1/embeddings")["message"]
    assert f"has {len(long)}." in refused(live, {"prompt": long}, "/v1/completions")["message"]  # it might have fitted


def test_what_others_would_wait_for_has_bounds(live: Live) -> None:
    assert "2048" in refused(live, {"input": ["x"] * 2049}, "/v1/embeddings")["message"]
    assert "2048" in httpx.post(live.url + "/api/embed", json={"model": "tiny", "input": ["x"] * 2049}).json()["error"]
    variables = {"messages": USER, "chat_template_kwargs": {"x": [{}] * 400_000}}
    assert "at most 1048576" in refused(live, variables)["message"]
    assert "at most 4194304" in refused(live, {"content": "x" * ((4 << 20) + 1)}, "/tokenize")["message"]
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "description": "x" * (1 << 20)}}}
    assert "at most 1048576" in refused(live, {"prompt": "x", "response_format": schema}, "/v1/completions")["message"]


def test_unknown_names(live: Live, client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client.chat.completions.create(model="gpt-nothing", messages=USER)
    assert httpx.get(live.url + "/v1/nothing").json()["error"]["type"] == "not_found_error"
    assert httpx.get(live.url + "/v1/chat/completions").status_code == 405


def test_unknown_tokens(live: Live) -> None:
    assert "100000" in refused(live, {"prompt": [1, 100000]}, "/v1/completions")["message"]
    assert refused(live, {"prompt": [1, "a"]}, "/v1/completions")["param"] == "prompt"
    assert refused(live, {"input": ""}, "/v1/embeddings")["param"] == "input"
    assert refused(live, {"tokens": [100000]}, "/detokenize")


def test_numbers_that_nothing_can_hold(live: Live) -> None:
    for body in ({"prompt": [1 << 70]}, {"prompt": "x", "top_k": 1 << 70}, {"prompt": "x", "priority": 1 << 70}):
        assert refused(live, {"max_tokens": 1, **body}, "/v1/completions")
    assert refused(live, {"input": [1 << 70]}, "/v1/embeddings")


def test_every_answer_has_a_request_id(live: Live) -> None:
    ids = {httpx.post(live.url + "/v1/completions", json={"prompt": 1}).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


def test_unknown_fields_are_ignored(live: Live) -> None:
    answer = httpx.post(live.url + "/v1/completions", json={"prompt": "x", "max_tokens": 1, "moonlight": True})
    assert answer.status_code == 200


def test_the_document_has_every_route(live: Live) -> None:
    document = httpx.get(live.url + "/openapi.json").json()
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/tokenize"):
        body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body["$ref"].removeprefix("#/components/schemas/") in document["components"]["schemas"]
    assert "/v1/responses/{response_id}" in document["paths"]
