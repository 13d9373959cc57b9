"""Bits → Ollama's answers: one JSON object, or lines of them, the last with counts and durations in nanoseconds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from tensormill.chat.parse import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from tensormill.engine.messages import Chance, Usage
from tensormill.server.exchange import encode
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Bit, Choice, Prompt, Values, spent
from tensormill.server.served import ServedModel
from tensormill.tokenizer import Tokenizer

LINES = "application/x-ndjson"
_REASONS = {"tool_calls": "stop"}
_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()  # what lasts longer, lasts until then


def error(problem: Problem) -> Values:
    """An error in Ollama's shape."""
    return {"error": str(problem)}


def line(value: object) -> bytes:
    """One line of a stream."""
    return encode(value) + b"\n"


def now() -> str:
    """The time as Go writes it."""
    return stamp(time.time())


def stamp(seconds: float) -> str:
    """A Unix time as Go writes it."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Writer:
    """What chat and generate have in common; `_said` puts text, thoughts and calls where each has them."""

    media = LINES

    def __init__(self, model: ServedModel, ask: Ask, prompts: list[Prompt], name: str) -> None:
        self._model = model
        self._ask = ask
        self._prompt = prompts[0]
        self._name = name or model.name
        self._load = time.monotonic() - ask.arrived
        self._calls = Calls()
        self._usage: Usage | None = None
        self._finish = "stop"
        self._tokens: list[int] = []

    def _said(self, text: str, thought: str, calls: list[Values]) -> Values:
        raise NotImplementedError

    def whole(self, choices: list[Choice]) -> Values:
        """A complete answer."""
        (choice,) = choices
        self._usage, self._finish, self._tokens = choice.usage, choice.finish, choice.tokens
        return {
            **self._head(),
            **self._said(*self._calls.take(choice.events)),
            **self._logprobs(choice.chances),
            **self._last(),
        }

    def start(self) -> Iterable[bytes]:
        """Nothing."""
        return ()

    def bit(self, bit: Bit) -> Iterable[bytes]:
        """A line, where there is something to say."""
        self._tokens += bit.tokens
        if bit.finish:
            self._usage, self._finish = bit.usage, bit.finish
        text, thought, calls = self._calls.take(bit.events)
        if text or thought or calls or bit.chances:
            said = self._said(text, thought, calls)
            yield line({**self._head(), **said, "done": False, **self._logprobs(bit.chances)})

    def end(self) -> Iterable[bytes]:
        """The last line."""
        yield line({**self._head(), **self._said("", "", []), **self._last()})

    def failed(self, problem: Problem) -> Iterable[bytes]:
        """The error as a line."""
        yield line(error(problem))

    def _head(self) -> Values:
        return {"model": self._name, "created_at": now()}

    def _last(self) -> Values:
        total = spent({0: self._usage} if self._usage else {})
        return {
            "done": True,
            "done_reason": _REASONS.get(self._finish, self._finish),
            "total_duration": round((time.monotonic() - self._ask.arrived) * 1e9),
            "load_duration": round(self._load * 1e9),
            "prompt_eval_count": total.prompt,
            "prompt_eval_duration": round(total.prompt_ms * 1e6),
            "eval_count": total.output,
            "eval_duration": round(total.output_ms * 1e6),
        }

    def _logprobs(self, chances: list[Chance]) -> Values:
        if self._ask.logprobs < 0 or not chances:
            return {}
        t = self._model.tokenizer
        return {
            "logprobs": [
                {**_token(t, c.token, c.logprob), "top_logprobs": [_token(t, i, p) for i, p in c.top]} for c in chances
            ]
        }  # fmt: skip


class ChatWriter(_Writer):
    """Writes /api/chat."""

    def _said(self, text: str, thought: str, calls: list[Values]) -> Values:
        message: Values = {"role": "assistant", "content": text}
        if thought:
            message["thinking"] = thought
        if calls:
            message["tool_calls"] = calls
        return {"message": message}


class GenerateWriter(_Writer):
    """Writes /api/generate; the last line has the ids of the whole exchange, to be sent back as `context`."""

    def _said(self, text: str, thought: str, calls: list[Values]) -> Values:
        return {"response": text, **({"thinking": thought} if thought else {})}

    def _last(self) -> Values:
        if self._ask.suffix is not None:
            return super()._last()
        t = self._model.tokenizer
        end = t.eot if t.eot is not None else t.eos
        ends = [end] if self._finish == "stop" and self._ask.messages is not None and end is not None else []
        return {**super()._last(), "context": [*self._prompt.tokens, *self._tokens, *ends]}


class Calls:
    """Events → text, thoughts and whole calls: a call is told when it is complete, one that broke off is text."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[str, str, list[str]]] = {}

    def take(self, events: Iterable[Event]) -> tuple[str, str, list[Values]]:
        """What the events add."""
        text, thought, calls = "", "", list[Values]()
        for event in events:
            match event:
                case Content(more):
                    text += more
                case Reasoning(more):
                    thought += more
                case ToolCallStart(index, id, name):
                    self._open[index] = (id, name, [])
                case ToolCallArguments(index, more):
                    self._open[index][2].append(more)
                case ToolCallEnd(index, broken):
                    id, name, parts = self._open.pop(index)
                    if not broken:
                        arguments = msgspec.json.decode("".join(parts) or "{}")
                        calls.append({"id": id, "function": {"index": index, "name": name, "arguments": arguments}})
        return text, thought, calls


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> Values:
    piece = tokenizer.piece(token)
    return {"token": piece.decode("utf-8", "replace"), "logprob": max(logprob, -9999.0), "bytes": list(piece)}
