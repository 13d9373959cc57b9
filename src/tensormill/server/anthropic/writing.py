"""Bits → Anthropic's message, whole or as events: blocks in the order in which the model wrote them.

Text that is only white space between other blocks is no block; a call that breaks off half-way stays as it was streamed,
and its raw text follows as a text block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tensormill.chat.parse import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from tensormill.engine.messages import Usage
from tensormill.server.exchange import sse
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Bit, Choice, Prompt, Values
from tensormill.server.served import ServedModel

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_TYPES = {
    "auth": "authentication_error", "forbidden": "permission_error", "missing": "not_found_error", "large": "request_too_large",
    "busy": "rate_limit_error", "engine": "api_error", "loading": "overloaded_error", "timeout": "timeout_error",
}  # fmt: skip


def error(problem: Problem) -> Values:
    """An error in Anthropic's shape."""
    kind = _TYPES.get(problem.kind, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(problem)}}


class MessageWriter:
    """Writes messages. `thinking`: reasoning is shown, else left out; `redacted`: its block is there, but empty."""

    media = "text/event-stream"

    def __init__(
        self, model: ServedModel, ask: Ask, prompts: list[Prompt], *, thinking: bool = False, redacted: bool = False
    ) -> None:
        self._blocks = Blocks(thinking=thinking, redacted=redacted)
        self._prompt = sum(len(p.tokens) for p in prompts)
        self._head: Values = {
            "id": f"msg_{ask.id}", "type": "message", "role": "assistant", "model": ask.model or model.name,
        }  # fmt: skip
        self._finish = ""
        self._matched: str | None = None
        self._usage: Usage | None = None
        self._thought = 0

    def whole(self, choices: list[Choice]) -> Values:
        """A `message`."""
        (choice,) = choices
        content = assembled([*self._blocks.take(choice.events), *self._blocks.close()])
        usage = {**_usage(choice.usage, self._prompt, choice.thought), "service_tier": "standard"}
        return {**self._head, "content": content, **_ending(choice.finish, choice.matched), "usage": usage}

    def start(self) -> Iterable[bytes]:
        """message_start; how much of the prompt was cached is told at the end."""
        usage = {**_usage(None, self._prompt), "service_tier": "standard"}
        message = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield _event("message_start", message=message)
        yield _event("ping")

    def bit(self, bit: Bit) -> Iterable[bytes]:
        """Blocks begun, continued, ended."""
        for kind, values in self._blocks.take(bit.events):
            yield _event(kind, **values)
        self._thought += bit.thought
        if bit.finish:
            self._finish, self._matched, self._usage = bit.finish, bit.matched, bit.usage

    def end(self) -> Iterable[bytes]:
        """The last block's end, message_delta and message_stop."""
        for kind, values in self._blocks.close():
            yield _event(kind, **values)
        usage = _usage(self._usage, self._prompt, self._thought)
        yield _event("message_delta", delta=_ending(self._finish, self._matched), usage=usage)
        yield _event("message_stop")

    def failed(self, problem: Problem) -> Iterable[bytes]:
        """The error as an event."""
        yield sse(error(problem), "error")


Step = tuple[str, Values]  # an event's name, and its fields


class Blocks:
    """Parsed events → the steps of content blocks, numbered through."""

    def __init__(self, *, thinking: bool, redacted: bool) -> None:
        self._thinking = thinking
        self._redacted = redacted
        self._index = 0
        self._open = ""  # type of the open block
        self._blank = ""  # white space that is text only if more text follows

    def take(self, events: Iterable[Event]) -> Iterator[Step]:
        """What events add."""
        for event in events:
            match event:
                case Content(text):
                    yield from self._text(text)
                case Reasoning(text) if self._thinking:
                    yield from self._enter("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                    if not self._redacted:
                        yield self._delta({"type": "thinking_delta", "thinking": text})
                case ToolCallStart(_, id, name):
                    yield from self.close()
                    yield from self._enter("tool_use", {"type": "tool_use", "id": id, "name": name, "input": {}})
                case ToolCallArguments(_, text):
                    yield self._delta({"type": "input_json_delta", "partial_json": text})
                case ToolCallEnd():
                    yield from self.close()

    def _text(self, text: str) -> Iterator[Step]:
        if self._open != "text":
            self._blank += text
            if not self._blank.strip():
                return
            text, self._blank = self._blank, ""
            yield from self._enter("text", {"type": "text", "text": ""})
        yield self._delta({"type": "text_delta", "text": text})

    def _enter(self, kind: str, block: Values) -> Iterator[Step]:
        if self._open != kind:
            yield from self.close()
            self._open = kind
            yield "content_block_start", {"index": self._index, "content_block": block}

    def _delta(self, delta: Values) -> Step:
        return "content_block_delta", {"index": self._index, "delta": delta}

    def close(self) -> Iterator[Step]:
        """End the open block, if there is one."""
        self._blank = ""
        if not self._open:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": ""})
        yield "content_block_stop", {"index": self._index}
        self._open = ""
        self._index += 1


def assembled(steps: Iterable[Step]) -> list[Values]:
    """Whole blocks from their steps. A call whose arguments are no object is left out: its text is in the text behind it."""
    blocks: list[Values] = []
    arguments: dict[int, str] = {}
    for kind, values in steps:
        index = values["index"]
        if kind == "content_block_start":
            blocks.append(dict(values["content_block"]))
        elif kind == "content_block_delta":
            delta = values["delta"]
            if delta["type"] == "input_json_delta":
                arguments[index] = arguments.get(index, "") + delta["partial_json"]
                continue
            (name,) = (n for n in delta if n != "type")
            blocks[index][name] += delta[name]
    whole: list[Values] = []
    for index, block in enumerate(blocks):
        if block["type"] == "tool_use":
            block["input"] = _object(arguments.get(index, ""))
            if block["input"] is None:
                continue
        if block["type"] == "text" and whole and whole[-1]["type"] == "text":
            whole[-1]["text"] += block["text"]
        else:
            whole.append(block)
    return whole


def _object(text: str) -> Any:
    try:
        value = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _event(kind: str, **values: object) -> bytes:
    return sse({"type": kind, **values}, kind)


def _ending(finish: str, matched: str | None) -> Values:
    reason = "stop_sequence" if finish == "stop" and matched else _REASONS[finish]
    return {"stop_reason": reason, "stop_sequence": matched if reason == "stop_sequence" else None}


def _usage(usage: Usage | None, prompt: int, thought: int = 0) -> Values:
    """`input_tokens` are those computed: what came from the cache is counted apart."""
    cached = usage.cached if usage else 0
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.output if usage else 0,
        "output_tokens_details": {"thinking_tokens": thought},
    }
