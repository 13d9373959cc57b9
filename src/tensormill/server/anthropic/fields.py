"""What Anthropic's clients send, as types. Fields not listed (cache_control, metadata, service_tier, …) change nothing here.

What the values mean is `asking.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Source(msgspec.Struct):
    """Where a document's text is: only `type` text is known."""

    type: str
    data: str | None = None


class Block(msgspec.Struct):
    """A block of content of any type; which fields it needs depends on that."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None
    source: str | Source | None = None
    title: str | None = None


class Message(msgspec.Struct):
    """One turn: of the user, the assistant or (between turns) the system."""

    role: str
    content: str | list[Block]


class Tool(msgspec.Struct):
    """A tool that the client runs."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """auto, any, none, or tool with a name."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(msgspec.Struct):
    """enabled, adaptive or disabled; `display`: summarized (shown whole here) or omitted."""

    type: str
    budget_tokens: int | None = None
    display: str | None = None


class OutputFormat(msgspec.Struct):
    """The schema that the answer must match."""

    type: str
    schema: dict[str, Any] = {}


class OutputConfig(msgspec.Struct):
    """How hard to think, and the form of the answer."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """The body of /v1/messages/count_tokens: what makes up a prompt."""

    messages: list[Message]
    model: str = ""
    system: str | list[Block] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """The body of /v1/messages."""

    max_tokens: int
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
