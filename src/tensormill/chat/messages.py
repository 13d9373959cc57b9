"""Fits messages to a template: plain values only, and the shapes of content, arguments and roles that it understands.

Templates differ in what they take: content as a string or as parts, tool arguments as an object or as JSON text, a
system role or none. What one understands is found by rendering probes, once, and only when it matters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from tensormill.errors import TemplateError

Message = dict[str, Any]
_NEEDLE = "needle-7153"


def plain(value: object, depth: int = 64) -> Any:
    """A copy of `value` in dicts, lists, strings, numbers and None; TemplateError for anything else."""
    if depth == 0:
        raise TemplateError("messages are nested too deep")
    if isinstance(value, bool) or value is None:
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, depth - 1) for inner in value]
    raise TemplateError(f"messages, tools and options hold JSON values, not {type(value).__name__}")


def checked(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A plain copy of the messages; TemplateError if one has no role or a content that is neither text nor parts."""
    copies: list[Message] = plain(list(messages))
    for index, message in enumerate(copies):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise TemplateError(f"message {index} needs a role: {{'role': 'user', 'content': '…'}}")
        if not isinstance(message.get("content"), (str, list, type(None))):
            raise TemplateError(f"the content of message {index} must be a string or a list of parts")
    return copies


class Abilities:
    """What a template understands; `render` renders messages with it, raising TemplateError when it refuses."""

    def __init__(self, render: Callable[[list[Message]], str]) -> None:
        self._render = render

    def _shows(self, messages: list[Message], unwanted: str = "\0") -> bool:
        try:
            text = self._render(messages)
        except TemplateError:
            return False
        return _NEEDLE in text and unwanted not in text

    @cached_property
    def strings(self) -> bool:
        """Content may be a string."""
        return self._shows([{"role": "user", "content": _NEEDLE}])

    @cached_property
    def parts(self) -> bool:
        """Content may be a list of parts (and is not just printed as a Python list)."""
        return self._shows([{"role": "user", "content": [{"type": "text", "text": _NEEDLE}]}], "'type'")

    @cached_property
    def system(self) -> bool:
        """There is a system role; also true where even a lone user message fails, since then nothing is known."""
        user = {"role": "user", "content": "hi"}
        return self._shows([{"role": "system", "content": _NEEDLE}, user]) or not self.strings

    @cached_property
    def object_arguments(self) -> bool:
        """Tool arguments may be an object; false only where JSON text works and an object does not."""
        return self._shows(self._call({"word": _NEEDLE})) or not self._shows(self._call(json.dumps({"word": _NEEDLE})))

    @staticmethod
    def _call(arguments: object) -> list[Message]:
        call = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": arguments}}
        return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]}]

    def fit(self, messages: list[Message]) -> list[Message]:
        """The messages in a shape that the template understands (changed in place where needed)."""
        for message in messages:
            content = message.get("content")
            if isinstance(content, list) and not self.parts:
                message["content"] = _joined(content)
            elif isinstance(content, str) and not self.strings and self.parts:
                message["content"] = [{"type": "text", "text": content}]
            for call in message.get("tool_calls") or []:
                self._fit_arguments(call)
        if messages and messages[0]["role"] in ("system", "developer") and not self.system:
            messages = _folded(messages)
        return messages

    def _fit_arguments(self, call: Any) -> None:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or "arguments" not in function:
            return
        arguments = function["arguments"]
        if isinstance(arguments, dict) and not self.object_arguments:
            function["arguments"] = json.dumps(arguments, ensure_ascii=False)
        elif isinstance(arguments, str) and self.object_arguments:
            try:
                parsed = json.loads(arguments or "{}")
            except (ValueError, RecursionError):
                return
            if isinstance(parsed, dict):
                function["arguments"] = parsed


def _joined(parts: list[Any]) -> str:
    """Text parts as one string, a line break between them."""
    for part in parts:
        if not (isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str))):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise TemplateError(f"the chat template of this model takes text only, not a part of type {kind!r}")
    return "\n".join(part if isinstance(part, str) else part["text"] for part in parts)


def _folded(messages: list[Message]) -> list[Message]:
    """The system text in front of the first user message."""
    system, rest = messages[0], messages[1:]
    if not isinstance(system.get("content"), str) or not system["content"]:
        return rest
    if rest and rest[0]["role"] == "user" and isinstance(rest[0].get("content"), str):
        return [{**rest[0], "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": system["content"]}, *rest]
