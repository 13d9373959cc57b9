"""Ollama's requests → `Ask`: options, format, think, turns with their calls, prompts with their templates."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from tensormill.config import SamplingConfig
from tensormill.engine.messages import Grammar
from tensormill.server.ollama.fields import AnswerRequest, ChatRequest, GenerateRequest, KeepAlive, Message, Options, Request
from tensormill.server.ollama.gotemplate import rendered
from tensormill.server.problem import Problem
from tensormill.server.registry import Registry
from tensormill.server.request import Ask, Values
from tensormill.server.served import ServedModel

_SAMPLING = {f.name for f in dataclasses.fields(SamplingConfig)}
_NAMES = {"repeat_last_n": "penalty_window", "num_predict": "max_tokens"}
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_LEVELS = ("low", "medium", "high")


def find(registry: Registry, name: str) -> ServedModel:
    """The model called that; the tag `:latest` may be missing or be too much."""
    base, _, tag = name.rpartition(":")
    known = {*registry.models, *registry.aliases}
    if name not in known and tag == "latest" and base in known:
        name = base
    elif name not in known and f"{name}:latest" in known:
        name = f"{name}:latest"
    return registry.find(name)


def chat(got: ChatRequest) -> Ask:
    """A conversation."""
    turns = _turns(got.messages or [])
    last = turns[-1] if turns else {}
    return _answer(
        got,
        messages=turns,
        tools=[msgspec.to_builtins(t) for t in got.tools] if got.tools else None,
        continue_final=last.get("role") == "assistant" and bool(last.get("content")) and "tool_calls" not in last,
    )


def generate(got: GenerateRequest) -> Ask:
    """A prompt: as it is (raw), in a template of the request's own, or as the user's turn in the model's."""
    prompt = got.prompt or ""
    _no_images(got.images, "images")
    before = got.context or []
    if got.suffix:
        return _answer(got, prompt=prompt, suffix=got.suffix, before=before)
    if got.raw:
        for name in ("template", "system", "context"):
            if getattr(got, name):
                raise Problem(f"raw does not go together with {name}", param=name)
        return _answer(got, prompt=prompt)
    if got.template:
        write = partial(rendered, got.template)
        parts = {"System": got.system or "", "Prompt": prompt}
        write(parts)  # a template that cannot be used is refused now
        return _answer(got, write=write, parts=parts, before=before)
    system = [{"role": "system", "content": got.system}] if got.system else []
    return _answer(got, messages=[*system, {"role": "user", "content": prompt}], before=before)


def _answer(got: AnswerRequest, **prompt: Any) -> Ask:
    top = got.top_logprobs or 0
    if not 0 <= top <= 20:
        raise Problem(f"top_logprobs must be between 0 and 20, not {top}", param="top_logprobs")
    thinking, values = _think(got.think)
    return Ask(
        model=got.model,
        keep=keep(got),
        thinking=thinking,
        thinking_budget=0 if thinking is False else None,
        template_values=values,
        sampling=sampling(got.options),
        grammar=_grammar(got.format),
        logprobs=top if got.logprobs else -1,
        **prompt,
    )


def _think(think: bool | str | None) -> tuple[bool | None, Values]:
    if isinstance(think, str):
        if think not in _LEVELS:
            raise Problem(f"think must be true, false, low, medium or high, not {think!r}", param="think")
        return True, {"reasoning_effort": think}
    return think, {}


def _grammar(form: str | dict[str, Any] | None) -> Grammar | None:
    if form is None or form == "":
        return None
    if form == "json":
        return Grammar("json_object", "")
    if isinstance(form, str):
        raise Problem(f'format must be "json" or a JSON schema, not {form!r}', param="format")
    return Grammar("json_schema", msgspec.json.encode(form).decode())


def sampling(options: Options | None) -> dict[str, Any]:
    """Options under the names of SamplingConfig; Problem for those that would change the answer but cannot be had."""
    given = {f: v for f in Options.__struct_fields__ if (v := getattr(options, f, None)) is not None}
    if given.pop("mirostat", 0):
        raise Problem("options.mirostat is not supported", param="options.mirostat")
    if "stop" in given:
        stop = given.pop("stop")
        given |= {"stop": tuple(filter(None, [stop] if isinstance(stop, str) else stop))}
    if given.get("num_predict", 0) < 0:
        del given["num_predict"]  # until the model or the context ends it
    if given.get("seed", 0) < 0:
        del given["seed"]
    made = {_NAMES.get(name, name): value for name, value in given.items()}
    if made.get("typical_p") == 1:
        del made["typical_p"]
    for name in made:
        if name not in _SAMPLING:
            raise Problem(f"options.{name} is not supported yet", param=f"options.{name}")
    return made


def _turns(messages: Sequence[Message]) -> list[Values]:
    """Turns as templates want them. Calls have no ids here: a result belongs to the first open call of its tool."""
    turns: list[Values] = []
    waiting: list[tuple[str, str]] = []  # tool, id
    for i, m in enumerate(messages):
        _no_images(m.images, f"messages[{i}].images")
        turn: Values = {"role": m.role, "content": m.content or ""}
        if m.thinking:
            turn["reasoning_content"] = m.thinking
        if m.tool_calls:
            turn["tool_calls"] = calls = [_call(c, f"call_{i}_{j}") for j, c in enumerate(m.tool_calls)]
            waiting += [(c["function"]["name"], c["id"]) for c in calls]
        if m.role == "tool":
            id = m.tool_call_id or next((id for tool, id in waiting if m.tool_name in (None, tool)), None)
            waiting = [w for w in waiting if w[1] != id]
            turn |= {key: value for key, value in (("tool_call_id", id), ("name", m.tool_name)) if value}
        turns.append(turn)
    return turns


def _call(call: Any, id: str) -> Values:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id or id, "type": "function", "function": function}


def _no_images(images: list[Any] | None, param: str) -> None:
    if images:
        raise Problem("this model takes no images", param=param)


def keep(request: Request) -> float | None:
    """Seconds that the model stays loaded once it is idle; None, as without `keep_alive`: as long as there is room."""
    seconds = math.inf if request.keep_alive is None else duration(request.keep_alive)
    return None if math.isinf(seconds) else seconds


def duration(given: KeepAlive) -> float:
    """Seconds of a number of seconds or of Go's notation ("1h30m"); negative: infinity. Problem for anything else."""
    text = str(given).strip()
    try:
        seconds = float(text)
    except ValueError:
        seconds = _parsed(text)
    if math.isnan(seconds):
        raise Problem("keep_alive must be a number", param="keep_alive")
    return math.inf if seconds < 0 else seconds


def _parsed(text: str) -> float:
    bare = text.lstrip("+-")
    parts = _DURATION.findall(bare)
    if not parts or "".join(a + b for a, b in parts) != bare:
        raise Problem(f'keep_alive must be seconds or a duration like "5m", not {text!r}', param="keep_alive")
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in parts)
    return -seconds if text.startswith("-") else seconds
