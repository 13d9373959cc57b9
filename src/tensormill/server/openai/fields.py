"""What the endpoints of OpenAI's API have in common: sampling fields, usage, timings, errors, log-probabilities."""

from __future__ import annotations

from typing import Any

import msgspec

from tensormill.engine.messages import Chance, Grammar
from tensormill.server.problem import Problem
from tensormill.server.request import EFFORTS, Spent, Values
from tensormill.tokenizer import Tokenizer

_TYPES = {"auth": "authentication_error", "busy": "rate_limit_error", "missing": "not_found_error"}


class Sampling(msgspec.Struct, kw_only=True):
    """Fields that say how to sample; those beyond OpenAI's are ours, under the names of our flags. null is not given."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_window: int | None = None
    dry_breakers: list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    penalty_window: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = None

    def sampling(self) -> dict[str, Any]:
        """What is stated, under the names of SamplingConfig; Problem for keys that are no token ids."""
        given = {f: getattr(self, f) for f in Sampling.__struct_fields__ if getattr(self, f) is not None}
        if "repetition_penalty" in given:
            given.setdefault("repeat_penalty", given.pop("repetition_penalty"))
        if "dry_breakers" in given:
            given["dry_breakers"] = tuple(given["dry_breakers"])
        if "stop" in given:
            given["stop"] = (given["stop"],) if isinstance(given["stop"], str) else tuple(given["stop"])
        if "logit_bias" in given:
            given["logit_bias"] = _biases(given["logit_bias"])
        if given.get("seed", 0) < 0:
            given["seed"] %= 1 << 64
        return given


def _biases(given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    try:
        return tuple((int(token), bias) for token, bias in given.items())
    except ValueError as error:
        raise Problem("logit_bias must have token ids as its keys", param="logit_bias") from error


class StreamOptions(msgspec.Struct):
    """What else a stream has."""

    include_usage: bool = False


def checked(name: str, value: int, least: int, most: int) -> int:
    """The value; Problem if it is out of range."""
    if not least <= value <= most:
        raise Problem(f"{name} must be between {least} and {most}, not {value}", param=name)
    return value


class JsonSchema(msgspec.Struct):
    """A named schema."""

    schema: dict[str, Any] = {}
    name: str = ""
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """What the answer must be: text, json_object, json_schema; beyond OpenAI regex, lark and gbnf, with `grammar`."""

    type: str = "text"
    json_schema: JsonSchema | None = None
    grammar: str | None = None


def tool_choice(named: str | None, choice: object, names: list[str]) -> str:
    """The internal tool choice: of the function `named`, else by the word in `choice`; Problem for an unknown one."""
    if named is not None:
        if named not in names:
            raise Problem(f"tool_choice names {named!r}, which is not among tools", param="tool_choice")
        return "=" + named
    if choice not in (None, "none", "auto", "required"):
        raise Problem(f"tool_choice must be none, auto, required or a function, not {choice!r}", param="tool_choice")
    if choice == "required" and not names:
        raise Problem("tool_choice is 'required' but there are no tools", param="tool_choice")
    return str(choice or "auto")


def grammar(form: ResponseFormat | None, param: str = "response_format") -> Grammar | None:
    """The grammar of a response format; Problem for an unknown one."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return Grammar("json_object", "")
    if form.type == "json_schema" and form.json_schema is not None:
        return Grammar("json_schema", msgspec.json.encode(form.json_schema.schema).decode())
    if form.type in ("regex", "lark", "gbnf") and form.grammar:
        return Grammar(form.type, form.grammar)
    raise Problem(f"{param}.type {form.type!r} is unknown or incomplete", param=param)


def error(problem: Problem) -> Values:
    """An error in OpenAI's shape."""
    kind = _TYPES.get(problem.kind, "invalid_request_error" if problem.status < 500 else "server_error")
    return {"error": {"message": str(problem), "type": kind, "param": problem.param, "code": problem.code}}


def usage(spent: Spent) -> Values:
    """OpenAI's `usage`, with the names of chat and completions."""
    return {
        "prompt_tokens": spent.prompt,
        "completion_tokens": spent.output,
        "total_tokens": spent.prompt + spent.output,
        "prompt_tokens_details": {"cached_tokens": spent.cached},
        "completion_tokens_details": {"reasoning_tokens": spent.reasoning},
    }


def timings(spent: Spent) -> Values:
    """llama.cpp's `timings`."""
    computed = spent.prompt - spent.cached
    return {
        "cache_n": spent.cached,
        "prompt_n": computed,
        "prompt_ms": round(spent.prompt_ms, 3),
        "prompt_per_second": _rate(computed, spent.prompt_ms),
        "predicted_n": spent.output,
        "predicted_ms": round(spent.output_ms, 3),
        "predicted_per_second": _rate(spent.output, spent.output_ms),
        "queued_ms": round(spent.queued_ms, 3),
        "draft_n": spent.drafted,
        "draft_n_accepted": spent.accepted,
    }


def _rate(n: int, ms: float) -> float:
    return round(n / ms * 1000, 3) if ms else 0.0


def logprobs(tokenizer: Tokenizer, chances: list[Chance]) -> list[Values]:
    """The `content` of chat's logprobs."""
    return [
        {**_token(tokenizer, c.token, c.logprob), "top_logprobs": [_token(tokenizer, t, p) for t, p in c.top]} for c in chances
    ]


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> Values:
    piece = tokenizer.piece(token)
    return {"token": piece.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(piece)}


def thinking(effort: str | None, enabled: bool | None, budget: int | None, values: Values) -> tuple[bool | None, int | None]:
    """Whether the model is to reason (None: as it likes), and in how many tokens at most: none where it was told not to."""
    if effort not in (None, "none", *EFFORTS):
        raise Problem(f"reasoning_effort must be none, {', '.join(EFFORTS)}, not {effort!r}", param="reasoning_effort")
    if budget is not None:
        checked("thinking_budget", budget, 0, 1 << 31)
    if effort == "none" or enabled is False or values.get("enable_thinking") is False:
        return False, 0
    return (True if enabled or effort else None), budget
