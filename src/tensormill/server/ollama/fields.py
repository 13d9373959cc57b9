"""What Ollama's clients send, as types. What the values mean is `asking.py`."""

from __future__ import annotations

from typing import Any

import msgspec

KeepAlive = float | str
Stop = str | list[str]


class Options(msgspec.Struct):
    """`options`. Those that say how a model is loaded (num_ctx, num_gpu, num_thread, …) are flags of this server: ignored."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_last_n: int | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    mirostat: int | None = None
    seed: int | None = None
    stop: Stop | None = None
    num_predict: int | None = None


class Function(msgspec.Struct, omit_defaults=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    """A tool; only functions are known."""

    function: Function
    type: str = "function"


class Called(msgspec.Struct):
    """What was called, with what."""

    name: str
    arguments: dict[str, Any] = {}


class ToolCall(msgspec.Struct):
    """A call that the model made earlier."""

    function: Called
    id: str | None = None


class Message(msgspec.Struct):
    """One turn of the conversation."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class Request(msgspec.Struct, kw_only=True):
    """What every request has."""

    model: str = ""
    keep_alive: KeepAlive | None = None
    options: Options | None = None


class AnswerRequest(Request, kw_only=True):
    """What /api/chat and /api/generate have in common."""

    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class ChatRequest(AnswerRequest, kw_only=True):
    """The body of /api/chat."""

    messages: list[Message] | None = None
    tools: list[Tool] | None = None


class GenerateRequest(AnswerRequest, kw_only=True):
    """The body of /api/generate."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[Any] | None = None


class EmbedRequest(Request, kw_only=True):
    """The body of /api/embed."""

    input: str | list[str]
    truncate: bool | None = None
    dimensions: int | None = None


class EmbeddingsRequest(Request, kw_only=True):
    """The body of /api/embeddings."""

    prompt: str = ""


class NameRequest(msgspec.Struct, kw_only=True):
    """A model; `name` is what `model` was once called."""

    model: str = ""
    name: str = ""
    verbose: bool | None = None
    stream: bool | None = None
