"""/v1/completions, /v1/embeddings, /v1/rerank and the tokenizer's routes."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from server.live import WIDTH, Live

QUICK: dict[str, Any] = {"model": "tiny", "max_tokens": 6, "extra_body": {"ignore_eos": True}, "temperature": 0}


def test_text_and_its_ids_are_the_same_prompt(client: openai.OpenAI, live: Live) -> None:
    ids = httpx.post(live.url + "/tokenize", json={"content": "hello"}).json()["tokens"]
    by_text = client.completions.create(prompt="hello", **QUICK)
    by_ids = client.completions.create(prompt=ids, **QUICK)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.usage.prompt_tokens == len(ids)


def test_a_list_of_prompts_has_an_answer_each(client: openai.OpenAI) -> None:
    alone = [client.completions.create(prompt=p, **QUICK).choices[0].text for p in ("one", "two")]
    both = client.completions.create(prompt=["one", "two"], n=2, **QUICK)
    assert [c.text for c in both.choices] == [alone[0], alone[0], alone[1], alone[1]]
    assert [c.index for c in both.choices] == [0, 1, 2, 3]
    assert both.usage.prompt_tokens == 6
    chunks = list(client.completions.create(prompt=["one", "two"], stream=True, **QUICK))
    assert ["".join(c.choices[0].text for c in chunks if c.choices[0].index == i) for i in (0, 1)] == alone


def test_echo_scores_the_prompt(client: openai.OpenAI) -> None:
    first = client.completions.create(prompt="ab", **QUICK, logprobs=0).choices[0]
    again = client.completions.create(prompt="ab" + first.text, echo=True, logprobs=2, **{**QUICK, "max_tokens": 0}).choices[0]
    assert again.text == "ab" + first.text
    assert again.logprobs.token_logprobs[0] is None
    if "\ufffd" not in first.text:
        assert again.logprobs.token_logprobs[2:] == pytest.approx(first.logprobs.token_logprobs, abs=1e-5)
    assert len(again.logprobs.tokens) == len(again.logprobs.top_logprobs) == len(again.logprobs.text_offset)


def test_the_likeliest_of_many_is_chosen(client: openai.OpenAI) -> None:
    ask = {
        "model": "tiny",
        "prompt": "x",
        "max_tokens": 5,
        "temperature": 1.5,
        "seed": 3,
        "logprobs": 0,
        "extra_body": {"ignore_eos": True},
    }
    all_ = client.completions.create(n=6, **ask).choices
    best = client.completions.create(n=1, best_of=6, **ask).choices
    means = {c.text: float(np.mean(c.logprobs.token_logprobs)) for c in all_}
    assert [c.text for c in best] == [max(means, key=lambda t: means[t])]


def test_the_middle_is_filled_in_with_the_vocabulary_s_tokens(client: openai.OpenAI) -> None:
    filled = client.completions.create(prompt="ab", suffix="cd", **QUICK)
    by_ids = client.completions.create(prompt=[261, 97, 98, 262, 99, 100, 263], **QUICK)
    assert filled.usage.prompt_tokens == 7
    assert filled.choices[0].text == by_ids.choices[0].text


def test_many_texts_are_embedded_in_their_order(client: openai.OpenAI) -> None:
    def embedded(texts: list[str]) -> list[list[float]]:
        return [d.embedding for d in client.embeddings.create(model="tiny", input=texts, encoding_format="float").data]

    texts = [f"text {i % 7}" * (1 + i % 3) for i in range(300)]
    single = {text: embedded([text])[0] for text in set(texts)}
    for text, vector in zip(texts, embedded(texts), strict=True):
        assert vector == pytest.approx(single[text], abs=1e-5)


def test_embeddings_are_unit_vectors_however_they_are_written(client: openai.OpenAI, live: Live) -> None:
    texts = ["one two", "three", "one two"]
    made = client.embeddings.create(model="tiny", input=texts, encoding_format="float")
    vectors = np.array([d.embedding for d in made.data])
    assert vectors.shape == (3, WIDTH)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(vectors[0], vectors[2])
    assert not np.allclose(vectors[0], vectors[1])
    raw = httpx.post(live.url + "/v1/embeddings", json={"input": texts[1], "encoding_format": "base64"}).json()
    coded = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), "<f4")
    assert coded == pytest.approx(vectors[1], abs=1e-6)
    short = client.embeddings.create(model="tiny", input=texts[0], dimensions=8, encoding_format="float").data[0].embedding
    cut = vectors[0][:8] / np.linalg.norm(vectors[0][:8])
    assert short == pytest.approx(cut, abs=1e-5)


def test_pooling_is_what_it_says(client: openai.OpenAI) -> None:
    def embedding(text: str, pooling: str) -> Any:
        extra = {"pooling": pooling}
        return client.embeddings.create(model="tiny", input=text, encoding_format="float", extra_body=extra).data[0].embedding

    assert embedding("x" * 200, "cls") == pytest.approx(embedding("x", "last"), abs=1e-4)
    text = "many different words, so that the mean is nobody's row " * 4
    assert not np.allclose(embedding(text, "mean"), embedding(text, "last"), atol=1e-3)
    with pytest.raises(openai.BadRequestError, match="pooling"):
        embedding("x", "best")


def test_reranking_finds_the_query_itself(live: Live) -> None:
    body = {"query": "the sky is blue", "documents": ["bananas", "the sky is blue", {"text": "0000"}], "top_n": 2}
    made = httpx.post(live.url + "/v1/rerank", json=body).json()
    assert made["scoring"] == "cosine"
    assert made["results"][0]["index"] == 1
    assert made["results"][0]["relevance_score"] == pytest.approx(1, abs=1e-5)
    assert len(made["results"]) == 2


def test_tokenizer_and_template_routes(live: Live) -> None:
    def post(path: str, **body: Any) -> Any:
        return httpx.post(live.url + path, json=body).json()

    text = "hé <|im_end|>"
    assert post("/detokenize", tokens=post("/tokenize", content=text)["tokens"])["content"] == text
    assert post("/tokenize", content="<|im_end|>")["count"] == 1
    assert post("/tokenize", content="<|im_end|>", parse_special=False)["count"] > 1
    prompt = post("/apply-template", messages=[{"role": "user", "content": "hi"}])["prompt"]
    assert prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    props = httpx.get(live.url + "/props").json()
    assert props["n_ctx"] == 8192
    assert props["total_slots"] == 16
