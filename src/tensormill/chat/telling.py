"""What a template does not know, in words: which tools there are, how to call one, and later what was called and came back.

So tools can be used with every model, though one that never saw any may make little of them. Calls are asked for in the
format in which the answer is read (`parse/`), where required by a grammar. All this is text, also where it names control
tokens: it stands among what people wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tensormill.chat.parse import Writing
from tensormill.chat.turns import Message

_TOOLS = """\
You can call these tools; each line is the JSON schema of one:
<tools>
{tools}
</tools>
To call a tool, write this, with its name and the values of its parameters, and then wait for the result:
{example}
If no tool is needed, just answer."""


def announced(messages: list[Message], tools: Sequence[Mapping[str, Any]], writing: Writing) -> list[Message]:
    """The messages with the tools behind the system text, or in a system message of their own."""
    schemas = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    example = writing.calls([("NAME", {"PARAMETER": "VALUE"})])
    text = _TOOLS.replace("{example}", example).replace("{tools}", schemas)
    first = messages[0] if messages and messages[0]["role"] in ("system", "developer") else None
    if first is None:
        return [{"role": "system", "content": text}, *messages]
    before = first.get("content") or ""
    both = [*before, {"type": "text", "text": text}] if isinstance(before, list) else f"{before}\n\n{text}".lstrip()
    return [{**first, "content": both}, *messages[1:]]


def told(message: Message, writing: Writing | None = None) -> Message:
    """A message that calls tools, or a tool's result, as text; calls as `writing` writes them, else as JSON."""
    if message["role"] == "tool":
        name = message.get("name") or "the tool"
        return {"role": "user", "content": f"Result of {name}:\n{message['content']}"}
    texts = [message["content"]] if isinstance(message.get("content"), str) and message["content"] else []
    texts += [_call(call["function"], writing) for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    return {**{k: v for k, v in message.items() if k != "tool_calls"}, "content": "\n".join(texts)}


def _call(function: Mapping[str, Any], writing: Writing | None) -> str:
    arguments = function.get("arguments")
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        found = None
    if writing is None or not isinstance(found, Mapping):
        return json.dumps(function, ensure_ascii=False)
    return writing.calls([(str(function.get("name")), found)])
