"""Constrained calls through the crank: a random model that must call a tool does, in every format, and the parser reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.bpe_engine import tokenizer, write
from engine.test_grammar import PROMPT, fits
from engine.test_speculation import Eager
from engine.tiny_engine import answers, load, told
from tensormill.chat.constrain import Wanted, constrain
from tensormill.chat.constrain.frames import frame
from tensormill.chat.parse import FORMATS, Format, OutputParser, gather
from tensormill.config import SamplingConfig
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Generate, Grammar

FORECAST = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["C", "F"]},
        "warm": {"type": "boolean"},
        "hours": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 23}, "maxItems": 2},
    },
    "required": ["days", "unit"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
SCHEMAS = {"forecast": FORECAST, "now": NOTHING}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path: Path = write(tmp_path_factory.mktemp("tiny") / "bpe.gguf")
    with load(path, context=768, chunk=64, drafts=4) as engine:
        yield engine


def tools(form: Format) -> list[dict]:
    """Not strict where the format cannot promise everything (bounds where values are no JSON)."""
    strict = not (form.writing.quote or form.writing.python or form.writing.tree)
    schemas = SCHEMAS
    if form.writing.tree:  # a list without bounds, in tags of many tokens, would not end in time
        no_list = {k: v for k, v in FORECAST["properties"].items() if k != "hours"}
        schemas = SCHEMAS | {"forecast": FORECAST | {"properties": no_list}}
    return [{"type": "function", "function": {"name": n, "parameters": s, "strict": strict}} for n, s in schemas.items()]


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda f: f.name)
def test_calls_of_a_random_model(engine: Engine, form: Format) -> None:
    inner = frame(form).inner
    requests = []
    for seed in range(4):
        wanted = Wanted(tools(form), "required", parallel=seed == 3, reasoning=False)
        kind, text = constrain(form, tokenizer(), wanted, inner) or ("", "")
        sampling = SamplingConfig(temperature=1.0 if seed else 0.0, seed=seed, top_k=0, max_tokens=600)
        requests.append(Generate(str(seed), PROMPT, sampling, grammar=Grammar(kind, text)))
    outputs = answers(Crank(engine, None, Eager()), requests)
    names = set()
    for request in requests:
        parser = OutputParser(form, tools(form), continues=inner, seed="x")
        answer = gather([*parser.push(told(outputs[request.id])[2]), *parser.finish()])
        if outputs[request.id][-1].finish == "stop":  # else the last call is cut off, and its text is content
            assert not answer.content.strip() and not answer.reasoning
            assert len(answer.calls) == 1 if request.id != "3" else answer.calls
        for call in answer.calls:
            names.add(call.name)
            assert fits(bounded(SCHEMAS[call.name], form), json.loads(call.arguments))
    assert names <= set(SCHEMAS) and names


def bounded(schema: dict, form: Format) -> dict:
    """The schema without what a format whose values are no JSON does not keep."""
    if tools(form)[0]["function"]["strict"] or not schema["properties"]:
        return schema
    whole = {"type": "integer", "minimum": -(10**20), "maximum": 10**20}
    hours = {"type": "array", "items": whole, "maxItems": 10**6}
    return schema | {"properties": schema["properties"] | {"days": whole, "hours": hours}}
