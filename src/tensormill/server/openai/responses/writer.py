"""Writes responses: the object, and the events of a stream. What was answered is remembered when it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tensormill.chat.parse import Event, gather
from tensormill.engine.messages import Usage
from tensormill.server.exchange import sse
from tensormill.server.openai import fields
from tensormill.server.openai.responses.items import Items
from tensormill.server.openai.responses.types import ResponsesRequest
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Bit, Choice, Values, spent
from tensormill.server.served import ServedModel

Keep = Callable[[Values, list[Values]], None]  # a response, and the messages up to and including its own


class ResponseWriter:
    """Writes one response; `keep` is told of it at its end."""

    media = "text/event-stream"

    def __init__(self, model: ServedModel, ask: Ask, got: ResponsesRequest, keep: Keep) -> None:
        self._model = model
        self._ask = ask
        self._keep = keep
        self._items = Items(ask.id)
        self._events: list[Event] = []
        self._usage: Usage | None = None
        self._finish = "stop"
        self._number = self._thought = 0
        self._response: Values = {
            **_echo(got),
            "id": f"resp_{ask.id}",
            "model": got.model or model.name,
            "created_at": int(time.time()),
        }

    def whole(self, choices: list[Choice]) -> Values:
        """A complete response."""
        choice = choices[0]
        logprobs = fields.logprobs(self._model.tokenizer, choice.chances)
        for event in choice.events:
            for _ in self._items.event(event, logprobs):
                logprobs = []
        self._events, self._usage, self._finish, self._thought = choice.events, choice.usage, choice.finish, choice.thought
        for _ in self._items.close():
            pass
        return self._completed()

    def start(self) -> Iterable[bytes]:
        """created, in_progress."""
        yield self._told("response.created", {"response": self._shown("in_progress")})
        yield self._told("response.in_progress", {"response": self._shown("in_progress")})

    def bit(self, bit: Bit) -> Iterable[bytes]:
        """Events of items."""
        logprobs = fields.logprobs(self._model.tokenizer, bit.chances)
        for event in bit.events:
            for name, values in self._items.event(event, logprobs):
                yield self._told(name, values)
                logprobs = []
        self._events += bit.events
        self._thought += bit.thought
        if bit.finish:
            self._usage, self._finish = bit.usage, bit.finish

    def end(self) -> Iterable[bytes]:
        """completed, or incomplete."""
        for name, values in self._items.close("incomplete" if self._finish == "length" else "completed"):
            yield self._told(name, values)
        done = self._completed()
        yield self._told(f"response.{done['status']}", {"response": done})

    def failed(self, problem: Problem) -> Iterable[bytes]:
        """failed."""
        error = {"code": "server_error", "message": str(problem)}
        yield self._told("response.failed", {"response": {**self._shown("failed"), "error": error}})

    def _told(self, name: str, values: Values) -> bytes:
        self._number += 1
        return sse({"type": name, "sequence_number": self._number - 1, **values}, name)

    def _shown(self, status: str) -> Values:
        return {**self._response, "status": status, "output": list(self._items.output), "usage": None}

    def _completed(self) -> Values:
        cut = self._finish == "length"
        shown = self._shown("incomplete" if cut else "completed")
        shown["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        shown["usage"] = _usage(self._usage, self._thought)
        self._keep(shown, [*(self._ask.messages or []), _message(self._events)])
        return shown


def _message(events: list[Event]) -> Values:
    """What was answered, as the message that the next turn sees."""
    answer = gather(events)
    message: Values = {"role": "assistant", "content": answer.content}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in answer.calls
        ]
    return message


def _usage(usage: Usage | None, thought: int) -> Values:
    total = spent({0: usage} if usage else {}, 1, thought)
    return {
        "input_tokens": total.prompt,
        "input_tokens_details": {"cached_tokens": total.cached},
        "output_tokens": total.output,
        "output_tokens_details": {"reasoning_tokens": total.reasoning},
        "total_tokens": total.prompt + total.output,
    }


def _echo(got: ResponsesRequest) -> Values:
    """What a response repeats of its request."""
    plain: Callable[[Any], Any] = msgspec.to_builtins
    return {
        "object": "response",
        "error": None,
        "incomplete_details": None,
        "instructions": got.instructions,
        "max_output_tokens": got.max_output_tokens,
        "metadata": got.metadata or {},
        "parallel_tool_calls": got.parallel_tool_calls is not False,
        "previous_response_id": got.previous_response_id,
        "reasoning": plain(got.reasoning) if got.reasoning else {"effort": None, "summary": None},
        "store": got.store is not False,
        "temperature": got.temperature,
        "text": {"format": plain(got.text.format) if got.text and got.text.format else {"type": "text"}},
        "tool_choice": plain(got.tool_choice) or "auto",
        "tools": plain(got.tools or []),
        "top_p": got.top_p,
        "truncation": got.truncation or "disabled",
        "user": got.user,
    }
