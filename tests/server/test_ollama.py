"""Ollama's API, black box: the official client against live servers, one of which says what its script says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import pytest

from server.live import ENDLESS, WIDTH, Live, serving
from server.scripted import CONTEXT

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Of a city.", "parameters": PARAMETERS}}
CALL = {"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}
HI = [{"role": "user", "content": "Hi!"}]
GREETING = "Hello there, my friend…!"
SCHEMA = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "mood": {"enum": ["good", "bad"]}},
    "required": ["sure", "mood"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llama(scripted: Live) -> ollama.Client:
    return ollama.Client(host=scripted.url, timeout=60)


@pytest.fixture(scope="module")
def tiny(live: Live) -> ollama.Client:
    """The random model: it has tokens for filling in the middle, and much to choose from."""
    return ollama.Client(host=live.url, timeout=60)


def chat(client: ollama.Client, *, stream: bool = False, **more: Any) -> ollama.ChatResponse:
    """An answer, the same way whole or streamed."""
    asked = {"model": "scripted", "messages": HI, **more}
    if not stream:
        return client.chat(**asked)
    parts = list(client.chat(stream=True, **asked))
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    last = parts[-1]
    last.message.content = "".join(p.message.content or "" for p in parts)
    last.message.thinking = "".join(p.message.thinking or "" for p in parts) or None
    last.message.tool_calls = [c for p in parts for c in p.message.tool_calls or []] or None
    return last


def called(answer: ollama.ChatResponse) -> list[tuple[str, dict[str, Any]]]:
    return [(c.function.name, dict(c.function.arguments)) for c in answer.message.tool_calls or []]


both = pytest.mark.parametrize("stream", [False, True])


@both
def test_chat(llama: ollama.Client, stream: bool) -> None:
    answer = chat(llama, stream=stream)
    assert (answer.message.role, answer.message.content) == ("assistant", GREETING)
    assert (answer.model, answer.done, answer.done_reason) == ("scripted", True, "stop")
    assert answer.message.thinking is None and answer.message.tool_calls is None
    assert (answer.prompt_eval_count or 0) > 9 and answer.eval_count == 4
    parts = (answer.load_duration, answer.prompt_eval_duration, answer.eval_duration)
    assert all(p is not None and p >= 0 for p in parts) and (answer.total_duration or 0) >= sum(p or 0 for p in parts[1:])
    assert datetime.fromisoformat(answer.created_at or "").tzinfo is not None


def test_a_stream_is_lines_of_json(scripted: Live) -> None:
    answer = httpx.post(scripted.url + "/api/chat", json={"model": "scripted", "messages": HI}, timeout=60)
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert len(lines) > 2 and "".join(line["message"]["content"] for line in lines) == GREETING
    assert "total_duration" in lines[-1] and "total_duration" not in lines[0]


@both
def test_tools_over_two_turns(llama: ollama.Client, stream: bool) -> None:
    first = chat(llama, stream=stream, tools=[TOOL])
    assert called(first) == [("get_weather", {"city": "Paris"})]
    assert (first.message.content, first.done_reason) == ("I look.", "stop")
    turns = [*HI, first.message, {"role": "tool", "tool_name": "get_weather", "content": "18 °C"}]
    second = chat(llama, stream=stream, tools=[TOOL], messages=turns)
    assert (second.message.content, second.message.tool_calls) == ("It is 18 degrees in Paris!", None)


@both
def test_two_calls_and_one_that_is_cut_off(llama: ollama.Client, stream: bool) -> None:
    two = chat(llama, stream=stream, tools=[TOOL], messages=[{"role": "user", "content": "both"}])
    assert called(two) == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})]
    cut = chat(llama, stream=stream, tools=[TOOL], options={"num_predict": 2})
    assert called(cut) == [] and '"get_weather"' in (cut.message.content or "")


@both
@pytest.mark.parametrize("think", [True, "high"])
def test_thinking(llama: ollama.Client, stream: bool, think: bool | str) -> None:
    answer = chat(llama, stream=stream, think=think)
    assert (answer.message.thinking or "").strip() == "The user greets me."
    assert (answer.message.content or "").strip() == "Good day!"
    assert chat(llama, stream=stream, think=False).message.content == GREETING
    made = llama.generate("scripted", "Hi!", think=think)
    assert (made.thinking or "").strip() == "The user greets me." and (made.response or "").strip() == "Good day!"


def test_an_answer_is_continued(llama: ollama.Client) -> None:
    answer = chat(llama, messages=[*HI, {"role": "assistant", "content": "Hello there,"}])
    assert answer.message.content == " my friend…!"


@both
def test_format(llama: ollama.Client, stream: bool) -> None:
    answer = chat(llama, stream=stream, format=SCHEMA, options={"num_predict": 200})
    made = json.loads(answer.message.content or "")
    assert made.keys() == {"sure", "mood"} and made["mood"] in ("good", "bad") and isinstance(made["sure"], bool)
    assert json.loads(llama.generate("scripted", "Hi!", format=SCHEMA).response or "").keys() == {"sure", "mood"}
    free = chat(llama, stream=stream, format="json", options={"num_predict": 60}).message.content or ""
    assert free.lstrip().startswith("{")  # what follows may be longer than there is room


@both
def test_tools_and_a_format_together(llama: ollama.Client, stream: bool) -> None:
    asked = {"stream": stream, "tools": [TOOL], "format": SCHEMA, "options": {"num_predict": 300}}
    first = chat(llama, **asked)
    assert called(first) or json.loads(first.message.content or "").keys() == {"sure", "mood"}
    turns = [*HI, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_name": "get_weather", "content": "18"}]
    second = chat(llama, messages=turns, **asked)
    assert called(second) or json.loads(second.message.content or "").keys() == {"sure", "mood"}


def test_a_stream_that_is_closed_is_computed_no_further(tiny: ollama.Client, live: Live) -> None:
    ended = live.metric("request_success_total")
    parts = tiny.generate("tiny", "Say", raw=True, stream=True, format=ENDLESS)
    assert next(parts).response is not None
    parts.close()
    live.until("num_requests_running", 0)
    assert live.metric("kv_pages_held") == 0 and live.metric("request_success_total") == ended


def test_options(llama: ollama.Client, tiny: ollama.Client) -> None:
    stopped = chat(llama, options={"stop": ["friend"], "temperature": 0, "repeat_last_n": 8, "num_ctx": 4096})
    assert (stopped.message.content, stopped.done_reason) == ("Hello there, my ", "stop")
    cut = chat(llama, options={"num_predict": 2})
    assert (cut.message.content, cut.done_reason, cut.eval_count) == ("Hello there,", "length", 2)
    assert chat(llama, options={"num_predict": -1, "seed": -1}).message.content == GREETING

    def said(**options: Any) -> str | None:
        return tiny.generate("tiny", "Say", raw=True, options={"num_predict": 12, "temperature": 1.5, **options}).response

    assert said(seed=7) == said(seed=7) != said(seed=8)
    assert said(temperature=0) == said(top_k=1, seed=3)


@both
def test_generate(llama: ollama.Client, stream: bool) -> None:
    made = llama.generate("scripted", "Hi!", system="Be kind.", stream=stream)
    parts = list(made) if stream else [made]
    assert "".join(p.response or "" for p in parts) == GREETING
    last = parts[-1]
    assert (last.done, last.done_reason, last.eval_count) == (True, "stop", 4)
    assert all(p.context is None for p in parts[:-1])
    assert len(last.context or []) == (last.prompt_eval_count or 0) + 4 + 1  # and the end of the turn


def test_context_goes_on(llama: ollama.Client) -> None:
    first = llama.generate("scripted", "Hi!", system="Be kind.")
    alone = llama.generate("scripted", "And?")
    second = llama.generate("scripted", "And?", context=first.context)
    assert second.response == GREETING
    assert second.prompt_eval_count == len(first.context or []) + (alone.prompt_eval_count or 0)
    assert list(second.context or [])[: len(first.context or [])] == list(first.context or [])


def test_templates_of_the_request(llama: ollama.Client) -> None:
    assert llama.generate("scripted", "<|go:answer|>", raw=True).response == "It is 18 degrees in Paris!"
    template = "{{ if .System }}{{ .System }}{{ else }}none{{ end }} {{- .Prompt }} <|go:think|>{{ .Response }}<|go:call|>"
    made = llama.generate("scripted", "Hi!", system="S", template=template)
    assert made.response == "<think>\nThe user greets me.\n</think>\n\nGood day!"  # as it is: nobody knows this template
    assert made.prompt_eval_count == len("SHi! ") + 1
    with pytest.raises(ollama.ResponseError, match="range") as refused:
        llama.generate("scripted", "Hi!", template="{{ range .Messages }}{{ .Content }}{{ end }}")
    assert refused.value.status_code == 400


def test_fill_in_the_middle(llama: ollama.Client, tiny: ollama.Client) -> None:
    made = tiny.generate("tiny", "def f(", suffix="return x", options={"num_predict": 4})
    assert made.prompt_eval_count == len("def f(") + len("return x") + 3
    with pytest.raises(ollama.ResponseError, match="filling in the middle"):
        llama.generate("scripted", "def f(", suffix="return x")


@both
def test_logprobs(llama: ollama.Client, stream: bool) -> None:
    made = llama.chat("scripted", HI, logprobs=True, top_logprobs=2, stream=stream)
    found = [p for part in (made if stream else [made]) for p in part.logprobs or []]
    assert "".join(p.token for p in found).startswith("Hello there, my friend")
    for p in found:
        assert -0.01 < p.logprob <= 0 and p.top_logprobs is not None
        assert next(t.token for t in p.top_logprobs) == p.token and len(p.top_logprobs) == 2


def test_embed(tiny: ollama.Client, live: Live) -> None:
    made = tiny.embed("tiny", ["first text", "another one"])
    vectors = np.array(made.embeddings)
    assert vectors.shape == (2, WIDTH) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert made.prompt_eval_count and made.total_duration and made.model == "tiny"
    assert np.allclose(tiny.embed("tiny", "first text").embeddings[0], vectors[0], atol=1e-5)
    assert np.allclose(tiny.embeddings("tiny", "first text").embedding, vectors[0], atol=1e-5)
    assert len(tiny.embed("tiny", "x", dimensions=8).embeddings[0]) == 8
    assert list(tiny.embed("tiny", []).embeddings) == []


def test_long_texts_are_cut_if_they_may_be(llama: ollama.Client) -> None:
    assert llama.embed("scripted", "x" * 3 * CONTEXT).prompt_eval_count == CONTEXT
    with pytest.raises(ollama.ResponseError, match=str(CONTEXT)):
        llama.embed("scripted", "x" * 3 * CONTEXT, truncate=False)


def test_listings(llama: ollama.Client) -> None:
    names = {m.model: m for m in llama.list().models}
    assert names.keys() == {"scripted", "actor"}
    details = names["actor"].details
    assert details and (details.format, details.family, details.quantization_level) == ("gguf", "llama", "F32")
    assert (names["actor"].size or 0) > 500_000 and len(names["actor"].digest or "") == 64
    chat(llama)
    (running,) = llama.ps().models
    assert (running.model, running.context_length) == ("scripted", CONTEXT)
    assert running.expires_at and running.expires_at > datetime.now(UTC) + timedelta(days=9999)


def test_show(llama: ollama.Client, tiny: ollama.Client, scripted: Live) -> None:
    shown = llama.show("actor:latest")
    assert shown.modelinfo and shown.modelinfo["general.architecture"] == "llama"
    assert shown.modelinfo["llama.context_length"] == CONTEXT and shown.modelinfo["tokenizer.ggml.tokens"] is None
    assert shown.capabilities == ["completion", "tools", "thinking"] and "<|go:say|>" in (shown.template or "")
    assert {line.split()[0] for line in (shown.parameters or "").splitlines()} >= {"temperature", "top_k", "repeat_last_n"}
    assert "insert" in (tiny.show("tiny").capabilities or [])
    whole = httpx.post(scripted.url + "/api/show", json={"name": "scripted", "verbose": True}).json()
    assert len(whole["model_info"]["tokenizer.ggml.tokens"]) > 256


def test_names_may_have_the_usual_tag(llama: ollama.Client) -> None:
    assert chat(llama, model="actor:latest").model == "actor:latest"
    assert httpx.get(str(llama._client.base_url) + "/api/version").json()["version"]


REFUSED = [
    ("/api/chat", {"model": "other"}, 404, "'other'"),
    ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["eA=="]}]}, 400, "images"),
    ("/api/chat", {"messages": [{"role": "user", "content": "x" * 2 * CONTEXT}]}, 400, str(CONTEXT)),
    ("/api/chat", {"options": {"temperature": "hot"}}, 400, "options.temperature"),
    ("/api/chat", {"options": {"mirostat": 2}}, 400, "mirostat"),
    ("/api/chat", {"options": {"top_p": 7}}, 400, "top_p"),
    ("/api/chat", {"format": "xml"}, 400, "format"),
    ("/api/chat", {"format": {"type": "object", "properties": {"a": {"$ref": "#/nope"}}}}, 400, "#/properties/a"),
    ("/api/generate", {"prompt": "x", "format": {"type": "tool"}}, 400, "'type'"),
    ("/api/chat", {"think": "hard"}, 400, "think"),
    ("/api/chat", {"keep_alive": "soon"}, 400, "keep_alive"),
    ("/api/chat", {"logprobs": True, "top_logprobs": 99}, 400, "top_logprobs"),
    ("/api/generate", {"prompt": "x", "raw": True, "system": "y"}, 400, "system"),
    ("/api/generate", {"prompt": "x", "context": [1, 2, 10**6]}, 400, "1000000"),
    ("/api/embed", {}, 400, "input"),
    ("/api/show", {"model": "other"}, 404, "'other'"),
    ("/api/create", {"model": "new", "from": "scripted"}, 404, "/api/create"),
]


@pytest.mark.parametrize(("path", "change", "status", "told"), REFUSED)
def test_refusals(scripted: Live, path: str, change: dict[str, Any], status: int, told: str) -> None:
    body = {"model": "scripted", **({"messages": HI} if path == "/api/chat" else {}), **change}
    answer = httpx.post(scripted.url + path, json=body, timeout=60)
    assert answer.status_code == status and answer.json().keys() == {"error"}
    assert told in answer.json()["error"]


def test_models_neither_come_nor_go(llama: ollama.Client, scripted_file: Path) -> None:
    with pytest.raises(ollama.ResponseError, match="cannot download") as absent:
        llama.pull("another-model")
    assert absent.value.status_code == 404
    assert llama.pull("actor").status == "success"
    assert [p.status for p in llama.pull("actor", stream=True)] == ["success"]
    with pytest.raises(ollama.ResponseError, match="does not delete") as kept:
        llama.delete("scripted")
    assert kept.value.status_code == 403
    with pytest.raises(ollama.ResponseError) as missing:
        llama.delete("another-model")
    assert missing.value.status_code == 404 and scripted_file.exists()


@pytest.fixture
def alone(scripted_file: Path) -> Iterator[Live]:
    with serving(scripted_file, flags=("--no-preload",), wait=False) as running:
        yield running


def test_for_ever_has_a_date(alone: Live) -> None:
    client = ollama.Client(alone.url)
    assert client.generate("scripted", keep_alive="9999999999999h").done_reason == "load"
    assert "9999-12-31" in httpx.get(alone.url + "/api/ps", timeout=60).text


def test_keep_alive(alone: Live) -> None:
    client = ollama.Client(host=alone.url, timeout=60)
    assert list(client.ps().models) == []
    assert client.generate("scripted", keep_alive="1h").done_reason == "load"
    until = client.ps().models[0].expires_at
    assert until and timedelta(minutes=59) < until - datetime.now(UTC) <= timedelta(hours=1)
    assert client.generate("scripted", keep_alive=0).done_reason == "unload"
    assert list(client.ps().models) == []
    assert chat(client, stream=True, keep_alive=0.2).message.content == GREETING  # it loads again, and stays a moment
    assert len(client.ps().models) == 1
    end = datetime.now(UTC) + timedelta(seconds=20)
    while client.ps().models:
        assert datetime.now(UTC) < end
    assert chat(client, keep_alive=-1).message.content == GREETING
    assert len(client.ps().models) == 1


def test_keep_alive_is_one_requests_wish(alone: Live) -> None:
    """What asks for an unloading gets it once, and never under others' feet: who comes during it has the model loaded again."""
    client = ollama.Client(host=alone.url, timeout=60)

    def other(n: int = 1) -> int:
        body = {"prompt": "x", "max_tokens": n, "ignore_eos": True}
        return int(httpx.post(alone.url + "/v1/completions", json=body, timeout=60).json()["usage"]["completion_tokens"])

    for _ in range(3):
        assert chat(client, keep_alive=0).message.content == GREETING
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(other, [1] * 16)) == {1}
    loaded = alone.engine_pid()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(other, 4000)
        alone.until("num_requests_running", 1)
        assert client.generate("scripted", keep_alive=0).done_reason == "unload"
        assert alone.engine_pid() == loaded and busy.result() == 4000
    while client.ps().models:
        time.sleep(0.05)
    assert other() == other() == 1 and alone.engine_pid() != loaded


def test_keys(guarded: Live) -> None:
    client = ollama.Client(host=guarded.url, headers={"authorization": "Bearer open-sesame"}, timeout=60)
    assert chat(client).message.content == GREETING
    with pytest.raises(ollama.ResponseError) as refused:
        ollama.Client(host=guarded.url).list()
    assert refused.value.status_code == 401 and "API key" in refused.value.error
