"""A real model over HTTP: what it says makes sense, and a second turn is cheap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from models.real import path_of
from server.live import Live, serving

MODEL = path_of("smollm2-135m")
pytestmark = [pytest.mark.real, pytest.mark.skipif(not MODEL.exists(), reason="needs `make models`")]
PARIS = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def demo() -> Iterator[Live]:
    with serving(MODEL, flags=("--threads", "2", "--ctx", "2048", "--alias", "demo")) as live:
        yield live


@pytest.fixture(scope="module")
def client(demo: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=demo.url + "/v1", api_key="none", max_retries=0, timeout=120)


def chat(client: openai.OpenAI, messages: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(model="demo", messages=messages, temperature=0, **{"max_tokens": 24, **more})


def test_it_knows_paris_whole_and_streamed_and_in_a_schema(client: openai.OpenAI) -> None:
    raw = client.completions.create(model="demo", prompt="The capital of France is", max_tokens=3, temperature=0)
    assert raw.choices[0].text.startswith(" Paris")
    whole = chat(client, PARIS)
    chunks = list(chat(client, PARIS, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}}
    made = chat(client, PARIS, response_format=form, max_tokens=200)
    assert json.loads(made.choices[0].message.content)["city"] in ("Paris", "Rome")


def test_a_second_turn_computes_only_what_is_new(client: openai.OpenAI) -> None:
    story = [{"role": "system", "content": "You are a storyteller. " * 60}, *PARIS]
    first = chat(client, story)
    again = [*story, {"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "More?"}]
    second = chat(client, again, max_tokens=4)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 64


def test_alike_texts_are_near(client: openai.OpenAI) -> None:
    texts = ["The cat sat on the mat.", "A cat is sitting on a mat.", "Quarterly revenue rose by four percent."]
    a, b, c = (d.embedding for d in client.embeddings.create(model="demo", input=texts).data)

    def near(x: list[float], y: list[float]) -> float:
        return sum(p * q for p, q in zip(x, y, strict=True))

    assert near(a, b) > near(a, c)
