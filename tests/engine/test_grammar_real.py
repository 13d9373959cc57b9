"""Structured output of a real model: it says what it would have said, in the form that was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine.tiny_engine import answers, told
from models.real import path_of
from tensormill.chat.constrain import Wanted, constrain
from tensormill.chat.parse import FORMATS, OutputParser, gather
from tensormill.config import EngineConfig, SamplingConfig
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Generate, Grammar

MODEL = path_of("qwen2.5-coder-0.5b")
pytestmark = [pytest.mark.real, pytest.mark.skipif(not MODEL.exists(), reason="needs `make models`")]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
COUNTRY = {
    "type": "object",
    "properties": {"country": {"type": "string"}, "capital": {"type": "string"}, "in_europe": {"type": "boolean"}},
    "required": ["country", "capital", "in_europe"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=[0, 5], ids=["plain", "drafts"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    config = EngineConfig(context=1024, threads=2, sequences=2, drafts=request.param)
    with Engine.load(MODEL, config) as engine:
        yield engine


def ask(engine: Engine, id: str, question: str, wanted: Wanted) -> Generate:
    prompt = engine.prompts.template.render([{"role": "user", "content": question}], tools=list(wanted.tools) or None)
    kind, text = constrain(FORMATS["hermes"], engine.tokenizer, wanted, prompt) or ("", "")
    tokens = engine.tokenizer.encode(prompt, add_special=False, parse_special=True)
    return Generate(id, tokens, SamplingConfig(temperature=0, max_tokens=80), grammar=Grammar(kind, text))


def test_a_schema_and_a_call_together(engine: Engine) -> None:
    schema = ("json_schema", json.dumps(COUNTRY))
    requests = [
        ask(
            engine, "country", "Describe France as JSON: country, capital, in_europe.", Wanted(response=schema, reasoning=False)
        ),
        ask(engine, "weather", "How warm is it in Paris, in celsius?", Wanted([WEATHER], "required", reasoning=False)),
    ]
    outputs: dict[str, Any] = answers(Crank(engine), requests)
    assert json.loads(told(outputs["country"])[2]) == {"country": "France", "capital": "Paris", "in_europe": True}
    parser = OutputParser("hermes", [WEATHER])
    said = gather([*parser.push(told(outputs["weather"])[2]), *parser.finish()])
    assert said.calls[0].name == "get_weather"
    assert json.loads(said.calls[0].arguments) == {"city": "Paris", "unit": "celsius"}
