"""Events of an answer → items of a response, with the events that announce them as they grow."""

from __future__ import annotations

from collections.abc import Iterator

from tensormill.chat.parse import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from tensormill.server.request import Values

Told = Iterator[tuple[str, Values]]
_TEXT = {"message": "response.output_text", "reasoning": "response.reasoning_text"}


class Items:
    """The output of one response; `output` is whole once `close` was called."""

    def __init__(self, id: str) -> None:
        self.output: list[Values] = []
        self._id = id
        self._open: Values | None = None
        self._space = ""  # white space that may stand between items, or begin a message
        self._logprobs: list[Values] = []

    def event(self, event: Event, logprobs: list[Values] | None = None) -> Told:
        """What an event tells; `logprobs` belong to its text."""
        match event:
            case Content(text):
                if self._opened("message") or (self._space + text).strip():
                    yield from self._text("message", self._space + text, logprobs or [])
                    self._space = ""
                else:
                    self._space += text
            case Reasoning(text):
                yield from self._text("reasoning", text, [])
            case ToolCallStart(_, id, name):
                yield from self._call(id, name)
            case ToolCallArguments(_, text):
                assert self._open is not None
                self._open["arguments"] += text
                yield "response.function_call_arguments.delta", {**self._at(), "delta": text}
            case ToolCallEnd(_, broken):
                yield from self.close("incomplete" if broken else "completed")

    def close(self, status: str = "completed") -> Told:
        """Nothing more comes for the item that is open."""
        item = self._open
        if item is None:
            return
        if item["type"] == "function_call":
            done = {**self._at(), "arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", done
        else:
            part = item["content"][0]
            more = {"logprobs": part.get("logprobs", [])} if item["type"] == "message" else {}
            yield _TEXT[item["type"]] + ".done", {**self._at(), "content_index": 0, "text": part["text"], **more}
            yield "response.content_part.done", {**self._at(), "content_index": 0, "part": part}
        item["status"] = status
        yield "response.output_item.done", {"output_index": len(self.output) - 1, "item": item}
        self._open = None

    def _opened(self, kind: str) -> bool:
        return self._open is not None and self._open["type"] == kind

    def _at(self) -> Values:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1}

    def _text(self, kind: str, text: str, logprobs: list[Values]) -> Told:
        if not self._opened(kind):
            yield from self.close()
            yield from self._begin_text(kind)
        part = self.output[-1]["content"][0]
        part["text"] += text
        more = {}
        if kind == "message":
            part["logprobs"] += logprobs
            more = {"logprobs": logprobs}
        yield _TEXT[kind] + ".delta", {**self._at(), "content_index": 0, "delta": text, **more}

    def _begin_text(self, kind: str) -> Told:
        if kind == "message":
            part: Values = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item: Values = {"id": self._name("msg"), "type": kind, "role": "assistant", "status": "in_progress"}
        else:
            part = {"type": "reasoning_text", "text": ""}
            item = {"id": self._name("rs"), "type": kind, "summary": [], "status": "in_progress"}
        yield from self._add({**item, "content": []})
        self.output[-1]["content"] = [part]
        yield "response.content_part.added", {**self._at(), "content_index": 0, "part": dict(part)}

    def _call(self, id: str, name: str) -> Told:
        yield from self.close()
        self._space = ""
        item = {"id": self._name("fc"), "type": "function_call", "call_id": id, "name": name, "arguments": ""}
        yield from self._add({**item, "status": "in_progress"})

    def _add(self, item: Values) -> Told:
        self.output.append(item)
        self._open = item
        yield "response.output_item.added", {"output_index": len(self.output) - 1, "item": dict(item)}

    def _name(self, kind: str) -> str:
        return f"{kind}_{self._id}{len(self.output)}"
