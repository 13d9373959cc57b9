"""Fits messages to a template: plain values only, and the shapes of content, arguments and roles that it understands.

Templates differ in what they take: content as a string or as parts, tool arguments as an object or as JSON text, a
system role or none, tools or none, short ids, strictly alternating turns. What one understands is found by rendering probes,
once, and only when it matters. What does not depend on the template is `turns.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from tensormill.chat.parse import Writing
from tensormill.chat.telling import announced, told
from tensormill.chat.turns import Message, joined, tidied
from tensormill.errors import TemplateError

_NEEDLE = "needle-7153"
_ID = "call00001"
_USER: Message = {"role": "user", "content": "hi"}
_TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.",
            "parameters": {
                "type": "object",
                "properties": {"word": {"type": "string", "description": "A word."}},
                "required": ["word"],
            },
        },
    }
]
_PROBES: tuple[object, object] = ({"word": _NEEDLE}, json.dumps({"word": _NEEDLE}))  # arguments as an object, as text


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
        if not isinstance(message.get("tool_calls"), (list, type(None))):
            raise TemplateError(f"the tool_calls of message {index} must be a list")
    return tidied(copies)


Render = Callable[[list[Message], list[dict[str, Any]] | None], str]


class Abilities:
    """What a template understands; `render` renders messages and tools with it, raising TemplateError when it refuses.

    What it does not is told the model in words: tools, calls (as `writing` writes them) and results.
    """

    def __init__(self, render: Render, writing: Writing) -> None:
        self._render = render
        self._writing = writing

    def _shows(self, messages: list[Message], unwanted: str = "\0") -> bool:
        calls = any(m.get("tool_calls") or m["role"] == "tool" for m in messages)
        try:
            text = self._render(messages, _TOOLS if calls else None)
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
        return self._shows([{"role": "system", "content": _NEEDLE}, _USER]) or not self.strings

    @cached_property
    def developer(self) -> bool:
        """There is a developer role."""
        return self._shows([{"role": "developer", "content": _NEEDLE}, _USER])

    @cached_property
    def tools(self) -> bool:
        """Tools are shown; also true where the template refuses them, in its own words."""
        function = {**_TOOLS[0]["function"], "description": _NEEDLE}
        try:
            return _NEEDLE in self._render([dict(_USER)], [{"type": "function", "function": function}])
        except TemplateError:
            return True

    @cached_property
    def call_content(self) -> str | None:
        """What stands as the content of a message that only calls tools: "" or, where calls are lost with it, None."""
        lost = not any(self._shows_call(a, content="") for a in _PROBES)
        return None if lost and any(self._shows_call(a, content=None) for a in _PROBES) else ""

    @cached_property
    def calls(self) -> bool:
        """Tool calls are shown."""
        return any(self._shows_call(a, content=self.call_content) for a in _PROBES)

    @cached_property
    def results(self) -> bool:
        """There is a tool role."""
        call = self._call({} if self.object_arguments else "{}", content=self.call_content)
        before = call if self.calls else [_USER, {"role": "assistant", "content": "look"}]
        return self._shows([*before, {"role": "tool", "tool_call_id": _ID, "name": "look", "content": _NEEDLE}])

    @cached_property
    def object_arguments(self) -> bool:
        """Tool arguments may be an object; false only where JSON text works and an object does not."""
        thing, text = (self._shows_call(a, content=self.call_content) for a in _PROBES)
        return thing or not text

    @cached_property
    def long_ids(self) -> bool:
        """Ids of calls may be longer than nine characters."""
        arguments = _PROBES[0] if self.object_arguments else _PROBES[1]
        return self._shows_call(arguments, "call_0123456789", self.call_content) or not self.calls

    @cached_property
    def repeats(self) -> bool:
        """A role may speak twice in a row."""
        return self._shows([_USER, {"role": "user", "content": _NEEDLE}]) or not self.strings

    def _shows_call(self, arguments: object, id: str = _ID, content: str | None = "") -> bool:
        """Whether a call is shown as the last message, or at least with its result behind it."""
        call = self._call(arguments, id, content)
        return self._shows(call) or self._shows([*call, {"role": "tool", "tool_call_id": id, "name": "look", "content": "ok"}])

    @staticmethod
    def _call(arguments: object, id: str = _ID, content: str | None = "") -> list[Message]:
        call = {"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}}
        return [_USER, {"role": "assistant", "content": content, "tool_calls": [call]}]

    def fit(self, messages: list[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[Message]:
        """The messages in a shape that the template understands (changed in place where needed)."""
        roles = {m["role"] for m in messages}
        asked = self._writing if tools and not self.tools else None  # in words, so calls look as the words say
        if asked is not None:
            messages = announced(messages, tools, asked)
        if "tool" in roles or any(m.get("tool_calls") for m in messages):
            messages = self._fit_tools(messages, asked)
        for message in messages:
            if message["role"] == "developer" and not self.developer:
                message["role"] = "system"
            content = message.get("content")
            if isinstance(content, list) and not self.parts:
                message["content"] = _joined(content)
        if messages and messages[0]["role"] in ("system", "developer") and not self.system:
            messages = _folded(messages)
        if _repeated(messages) and not self.repeats:
            messages = joined(messages)
        for message in messages:
            if isinstance(message.get("content"), str) and not self.strings and self.parts:
                message["content"] = [{"type": "text", "text": message["content"]}]
        return messages

    def _fit_tools(self, messages: list[Message], asked: Writing | None) -> list[Message]:
        if not self.calls:
            messages = [told(m, asked) if m.get("tool_calls") else m for m in messages]
        for message in messages:
            calls = [c for c in message.get("tool_calls") or [] if isinstance(c, dict)]
            if calls and not message.get("content"):
                message["content"] = self.call_content
            for call in calls:
                self._fit_arguments(call)
            if not self.long_ids:
                for holder, key in [*((c, "id") for c in calls), (message, "tool_call_id")]:
                    if isinstance(holder.get(key), str):
                        holder[key] = _nine(holder[key])
        return messages if self.results else [told(m) if m["role"] == "tool" else m for m in messages]

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


def _nine(id: str) -> str:
    """An id of nine letters and digits, the same for the same id."""
    return id if len(id) == 9 and id.isalnum() else hashlib.blake2b(id.encode(), digest_size=5).hexdigest()[:9]


def _repeated(messages: list[Message]) -> bool:
    roles = [m["role"] for m in messages]
    return any(a == b and a in ("user", "assistant") for a, b in pairwise(roles))


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
