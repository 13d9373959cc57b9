"""`/v1/chat/completions`: OpenAI's chat request → `Ask`, bits → chat completion objects and chunks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tensormill.chat.parse import Content, Event, Reasoning, ToolCallArguments, ToolCallStart, gather
from tensormill.engine.messages import Usage
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import body as read_body
from tensormill.server.exchange import sse
from tensormill.server.openai import fields
from tensormill.server.openai.fields import ResponseFormat, Sampling, StreamOptions, checked
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Bit, Choice, Prompt, Values, spent
from tensormill.server.served import ServedModel
from tensormill.server.server import Server


class Function(msgspec.Struct, omit_defaults=True):
    """A function that the model may call, or has called."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct):
    """A tool; only functions are known."""

    function: Function
    type: str = "function"


class Called(msgspec.Struct):
    """What was called; `arguments` is JSON text (an object is taken too)."""

    name: str
    arguments: str | dict[str, Any] = "{}"


class ToolCall(msgspec.Struct):
    """A call that the model made earlier."""

    function: Called
    id: str = ""
    type: str = "function"


class Part(msgspec.Struct, omit_defaults=True):
    """A part of a message; only text is known."""

    type: str
    text: str | None = None
    refusal: str | None = None


class Message(msgspec.Struct, omit_defaults=True):
    """One turn of the conversation."""

    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Named(msgspec.Struct):
    """The name of a function."""

    name: str


class NamedChoice(msgspec.Struct):
    """tool_choice that names a function."""

    function: Named
    type: str = "function"


class ChatRequest(Sampling, kw_only=True):
    """The body of /v1/chat/completions. Fields after `user` are ours, or other servers'."""

    messages: list[Message]
    model: str = ""
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: str | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    thinking_budget: int | None = None
    user: str | None = None
    functions: list[Any] | None = None  # what came before tools
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None


def ask(body: ChatRequest) -> Ask:
    """The internal request."""
    if body.functions:
        raise Problem("functions are not supported; give them as tools", param="functions")
    sampling = body.sampling()
    if body.max_completion_tokens is not None:
        sampling["max_tokens"] = body.max_completion_tokens
    values = dict(body.chat_template_kwargs)
    if body.reasoning_effort is not None:
        values.setdefault("reasoning_effort", body.reasoning_effort)
    thinking, budget = fields.thinking(body.reasoning_effort, body.enable_thinking, body.thinking_budget, values)
    return Ask(
        model=body.model,
        messages=[message(m, f"messages[{i}]") for i, m in enumerate(body.messages)],
        tools=[msgspec.to_builtins(t) for t in body.tools] if body.tools else None,
        tool_choice=_tool_choice(body),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        continue_final=body.continue_final_message,
        thinking=thinking,
        thinking_budget=budget,
        template_values=values,
        sampling=sampling,
        grammar=fields.grammar(body.response_format),
        n=checked("n", body.n if body.n is not None else 1, 1, 128),
        logprobs=_logprobs(body),
        priority=body.priority,
        timeout=body.timeout,
    )


def message(m: Message, place: str) -> Values:
    """A message as templates want it; Problem for parts that are not text, and for nothing where text must be."""
    if m.content is None and m.role in ("system", "developer", "user"):
        raise Problem(f"{place}.content is missing", param=f"{place}.content")
    if isinstance(m.content, list):
        for part in m.content:
            if part.text is None and part.refusal is None:
                raise Problem(f"content parts of type {part.type!r} are not supported by this model", param="messages")
    values: Values = msgspec.to_builtins(m)
    values.setdefault("content", None if m.tool_calls else "")
    return values


def _tool_choice(body: ChatRequest) -> str:
    choice = body.tool_choice
    named = choice.function.name if isinstance(choice, NamedChoice) else None
    return fields.tool_choice(named, choice, [t.function.name for t in body.tools or []])


def _logprobs(body: ChatRequest) -> int:
    top = checked("top_logprobs", body.top_logprobs or 0, 0, 20)
    if top and not body.logprobs:
        raise Problem("top_logprobs needs logprobs to be true", param="top_logprobs")
    return top if body.logprobs else -1


class ChatWriter:
    """Writes chat completions."""

    media = "text/event-stream"

    def __init__(self, model: ServedModel, ask: Ask, prompts: list[Prompt], *, include_usage: bool = False) -> None:
        self._model = model
        self._ask = ask
        self._include_usage = include_usage
        self._head = {"id": f"chatcmpl-{ask.id}", "created": int(time.time()), "model": ask.model or model.name}
        self._usages: dict[int, Usage] = {}
        self._thought = 0

    def whole(self, choices: list[Choice]) -> Values:
        """A `chat.completion`."""
        usages = {c.index: c.usage for c in choices if c.usage}
        total = spent(usages, self._ask.n, sum(c.thought for c in choices))
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(c) for c in choices],
            "usage": fields.usage(total),
            "timings": fields.timings(total),
        }

    def _choice(self, choice: Choice) -> Values:
        answer = gather(choice.events)
        message: Values = {"role": "assistant", "content": answer.content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["content"] = answer.content or None
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in answer.calls
            ]
        logprobs = {"content": fields.logprobs(self._model.tokenizer, choice.chances)} if self._ask.logprobs >= 0 else None
        return {"index": choice.index, "message": message, "finish_reason": choice.finish, "logprobs": logprobs}

    def start(self) -> Iterable[bytes]:
        """A chunk with the role, for each choice."""
        for i in range(self._ask.n):
            yield self._chunk(i, {"role": "assistant", "content": ""})

    def bit(self, bit: Bit) -> Iterable[bytes]:
        """A chunk an event; log-probabilities go with the first."""
        self._thought += bit.thought
        logprobs = None
        if bit.chances:
            logprobs = {"content": fields.logprobs(self._model.tokenizer, bit.chances)}
        deltas = [d for d in map(_delta, bit.events) if d]
        if logprobs and not deltas:
            deltas = [{}]
        for delta in deltas:
            yield self._chunk(bit.choice, delta, logprobs=logprobs)
            logprobs = None
        if bit.finish:
            yield self._chunk(bit.choice, {}, finish=bit.finish)
            if bit.usage:
                self._usages[bit.choice] = bit.usage

    def _chunk(self, index: int, delta: Values, *, logprobs: Values | None = None, finish: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        more = {"usage": None} if self._include_usage else {}
        return sse({**self._head, "object": "chat.completion.chunk", "choices": [choice], **more})

    def end(self) -> Iterable[bytes]:
        """Usage, if wanted, and the end mark."""
        if self._include_usage:
            total = spent(self._usages, self._ask.n, self._thought)
            more = {"choices": [], "usage": fields.usage(total), "timings": fields.timings(total)}
            yield sse({**self._head, "object": "chat.completion.chunk", **more})
        yield b"data: [DONE]\n\n"

    def failed(self, problem: Problem) -> Iterable[bytes]:
        """The error as an event."""
        yield sse(fields.error(problem))


def _delta(event: Event) -> Values | None:
    match event:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case ToolCallStart(index, id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]}
        case ToolCallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    return None


async def complete(server: Server, request: Request) -> Response:
    """Answer a conversation."""
    got = await read_body(request, ChatRequest, server.config.max_body)
    usage = bool(got.stream_options and got.stream_options.include_usage)
    return await server.answer(
        request,
        ask(got),
        lambda model, ask, prompts: ChatWriter(model, ask, prompts, include_usage=usage),
        streamed=bool(got.stream),
        salt=got.cache_salt,
    )


ENDPOINTS = (Endpoint("POST", "/v1/chat/completions", complete, "Answer a conversation", ChatRequest, streams=True),)
