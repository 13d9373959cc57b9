"""Turns as clients send them, in the one shape that templates are written for; nothing here depends on a template.

Old function calls become tool calls, calls and results find each other by id and name, text parts of results are joined, and
reasoning is given under each of the names that templates look for.
"""

from __future__ import annotations

from typing import Any

Message = dict[str, Any]
_REASONING = ("reasoning_content", "reasoning", "thinking")


def tidied(messages: list[Message]) -> list[Message]:
    """The messages (changed in place), with every call and result whole: ids, names, types."""
    names: dict[str, str] = {}  # id of a call → its tool
    open_calls: list[str] = []  # ids without a result yet
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            _tidy_answer(message, place, names, open_calls)
        elif message["role"] in ("tool", "function"):
            _tidy_result(message, names, open_calls)
    return messages


def _tidy_answer(message: Message, place: int, names: dict[str, str], open_calls: list[str]) -> None:
    thought = next((message[k] for k in _REASONING if isinstance(message.get(k), str) and message[k]), None)
    if thought is not None:
        message.update(dict.fromkeys(_REASONING, thought))
    if "function_call" in message:
        old = message.pop("function_call")
        if isinstance(old, dict) and not message.get("tool_calls"):
            message["tool_calls"] = [{"type": "function", "function": old}]
    calls = message.get("tool_calls")
    if calls is not None and not calls:
        del message["tool_calls"]  # templates ask whether it is there
    for number, call in enumerate(calls or []):
        if isinstance(call, dict):
            _tidy_call(call, f"call{place:03}{number:02}", names, open_calls)


def _tidy_call(call: dict[str, Any], id: str, names: dict[str, str], open_calls: list[str]) -> None:
    function = call.get("function")
    if not isinstance(function, dict):
        function = {k: call.pop(k) for k in ("name", "arguments") if k in call}
        call["function"] = function
    call["type"] = "function"
    call["id"] = call.get("id") or id
    if function.get("arguments") is None:
        function["arguments"] = "{}"
    names[str(call["id"])] = str(function.get("name", ""))
    open_calls.append(str(call["id"]))


def _tidy_result(message: Message, names: dict[str, str], open_calls: list[str]) -> None:
    id = message.get("tool_call_id")
    if message["role"] == "function":
        message["role"] = "tool"
        id = id or next((i for i in open_calls if names[i] == message.get("name")), None)
    id = id or next(iter(open_calls), None)
    if id is not None:
        message["tool_call_id"] = id
        if not message.get("name") and names.get(str(id)):
            message["name"] = names[str(id)]
        if id in open_calls:
            open_calls.remove(id)
    content = message.get("content")
    if content is None:
        message["content"] = ""
    elif isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        message["content"] = "\n".join(p["text"] for p in content)


def joined(messages: list[Message]) -> list[Message]:
    """Neighbouring turns of one role as one turn, for templates that insist on alternating ones."""
    out: list[Message] = []
    for message in messages:
        last = out[-1] if out else None
        same = last is not None and last["role"] == message["role"] and message["role"] in ("user", "assistant")
        if last is not None and same and isinstance(last.get("content"), str) and isinstance(message.get("content"), str):
            texts = [t for t in (last["content"], message["content"]) if t]
            out[-1] = {**last, **message, "content": "\n\n".join(texts)}
        else:
            out.append(message)
    return out
