"""The body of /v1/responses, as far as it is understood; hosted tools and conversations are not."""

from __future__ import annotations

from typing import Any

import msgspec


class Part(msgspec.Struct):
    """A part of an item's content; only text is known."""

    type: str
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct):
    """One item of the input: a message, reasoning, a function call or its output, told apart by `type`."""

    type: str = "message"
    role: str | None = None
    content: str | list[Part] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[Part] | None = None
    summary: list[Part] | None = None


class ResponseTool(msgspec.Struct, omit_defaults=True):
    """A function that the model may call."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """tool_choice that names a function."""

    type: str
    name: str = ""


class TextFormat(msgspec.Struct):
    """What the text must be."""

    type: str = "text"
    name: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    grammar: str | None = None


class TextOptions(msgspec.Struct):
    """How text is answered."""

    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(msgspec.Struct):
    """How much to think."""

    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """The body. Fields after `user` are ours, or other servers'."""

    input: str | list[Item] = msgspec.field(default_factory=list)
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    metadata: dict[str, str] | None = None
    background: bool | None = None
    truncation: str | None = None
    user: str | None = None
    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: str | list[str] | None = None
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    cache_salt: str = ""
    timeout: float | None = None
