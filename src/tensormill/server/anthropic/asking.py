"""Anthropic's request → `Ask`: blocks become turns, tools become functions, thinking becomes the template's switch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tensormill.engine.messages import Grammar
from tensormill.server.anthropic.fields import Block, CountRequest, Message, MessagesRequest, Tool
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Values

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_THINKING = {"enabled": True, "adaptive": True, "between_tools": True, "disabled": False}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_TEXTS = ("text", "document", "search_result")


def ask(body: CountRequest) -> Ask:
    """The prompt of a request, and how it is to be answered."""
    turns = [*_system(body), *(turn for i, m in enumerate(body.messages) for turn in _turns(m, f"messages[{i}]"))]
    last = turns[-1] if turns else {}
    made = Ask(
        model=body.model,
        messages=turns,
        tools=[_tool(t, f"tools[{i}]") for i, t in enumerate(body.tools)] if body.tools else None,
        tool_choice=_choice(body),
        parallel_tool_calls=not (body.tool_choice and body.tool_choice.disable_parallel_tool_use),
        continue_final=last.get("role") == "assistant" and bool(last.get("content")) and "tool_calls" not in last,
        thinking=_thinking(body),
        thinking_budget=_budget(body),
        template_values=_effort(body),
        grammar=_grammar(body),
    )
    if isinstance(body, MessagesRequest):
        made.sampling = _sampling(body)
    return made


def shows_thinking(body: CountRequest) -> bool:
    """Whether the answer may have thinking blocks: only where thinking was asked for."""
    return _thinking(body)


def _system(body: CountRequest) -> list[Values]:
    text = body.system if isinstance(body.system, str) else _text(body.system or [], "system")
    return [{"role": "system", "content": text}] if text else []


def _turns(message: Message, where: str) -> Iterable[Values]:
    """A message as one turn or several: each result of a tool is a turn of its own."""
    if message.role not in ("user", "assistant", "system"):
        raise Problem(f"{where}.role must be user or assistant, not {message.role!r}", param=f"{where}.role")
    if isinstance(message.content, str):
        yield {"role": message.role, "content": message.content}
    elif message.role == "assistant":
        yield _answer(message.content, f"{where}.content")
    else:
        yield from _asked(message.role, message.content, f"{where}.content")


def _asked(role: str, blocks: list[Block], where: str) -> Iterable[Values]:
    texts: list[str] = []
    for i, block in enumerate(blocks):
        if block.type != "tool_result":
            texts.append(_text([block], f"{where}[{i}]"))
            continue
        if texts:
            yield {"role": role, "content": "\n".join(texts)}
            texts = []
        yield _result(block, f"{where}[{i}]")
    if texts or not blocks:
        yield {"role": role, "content": "\n".join(texts)}


def _result(block: Block, where: str) -> Values:
    id = _needed(block, "tool_use_id", where)
    given = block.content or ""
    text = given if isinstance(given, str) else _text(given, f"{where}.content")
    return {"role": "tool", "tool_call_id": id, "content": f"Error: {text}" if block.is_error else text}


def _answer(blocks: list[Block], where: str) -> Values:
    """An earlier answer. Thinking goes back to the template, which decides what of it the model sees again."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Values] = []
    for i, block in enumerate(blocks):
        here = f"{where}[{i}]"
        match block.type:
            case "thinking":
                thoughts.append(_needed(block, "thinking", here))
            case "redacted_thinking":
                pass  # nothing that this model could read
            case "tool_use":
                function = {"name": _needed(block, "name", here), "arguments": block.input or {}}
                calls.append({"id": _needed(block, "id", here), "type": "function", "function": function})
            case _:
                texts.append(_text([block], here))
    turn: Values = {"role": "assistant", "content": "".join(texts)}
    if any(thoughts):
        turn["reasoning_content"] = "\n".join(thoughts)
    if calls:
        turn["tool_calls"] = calls
    return turn


def _text(blocks: list[Block], where: str) -> str:
    """The text of blocks that are text; Problem for others."""
    return "\n".join(_one(block, where) for block in blocks)


def _one(block: Block, where: str) -> str:
    if block.type == "text":
        return _needed(block, "text", where)
    if block.type == "document" and not isinstance(block.source, str) and block.source and block.source.type == "text":
        return "\n".join(filter(None, (block.title, block.source.data)))
    if block.type == "search_result" and isinstance(block.content, list):
        source = block.source if isinstance(block.source, str) else ""
        return "\n".join(filter(None, (block.title, source, _text(block.content, where))))
    if block.type in _TEXTS:
        raise Problem(f"{where}: a {block.type} block must have its text in it", param=where)
    raise Problem(f"{where}: blocks of type {block.type!r} are not supported here", param=where)


def _needed(block: Block, name: str, where: str) -> str:
    value = getattr(block, name)
    if value is None:
        raise Problem(f"{where}: a {block.type} block needs {name}", param=f"{where}.{name}")
    return str(value)


def _tool(tool: Tool, where: str) -> Values:
    if tool.type not in (None, "custom"):
        raise Problem(f"{where}: this server has no tool of type {tool.type!r}, only custom ones", param=f"{where}.type")
    if tool.input_schema is None:
        raise Problem(f"{where}: a tool needs input_schema", param=f"{where}.input_schema")
    function: Values = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(body: CountRequest) -> str:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    if choice.type == "tool":
        if choice.name not in [t.name for t in body.tools or []]:
            raise Problem(f"tool_choice names {choice.name!r}, which is not among tools", param="tool_choice.name")
        return f"={choice.name}"
    if choice.type not in _CHOICES:
        raise Problem(f"tool_choice.type must be auto, any, tool or none, not {choice.type!r}", param="tool_choice.type")
    if choice.type == "any" and not body.tools:
        raise Problem("tool_choice is any but there are no tools", param="tool_choice")
    return _CHOICES[choice.type]


def _thinking(body: CountRequest) -> bool:
    """Off unless asked for, whatever the template would do without being told."""
    thinking = body.thinking
    if thinking is None:
        return False
    if thinking.type not in _THINKING:
        raise Problem(f"thinking.type must be enabled, adaptive or disabled, not {thinking.type!r}", param="thinking.type")
    if thinking.type == "enabled" and thinking.budget_tokens is None:
        raise Problem("thinking.budget_tokens is missing", param="thinking.budget_tokens")
    return _THINKING[thinking.type]


def _budget(body: CountRequest) -> int | None:
    """Tokens of reasoning; none where it is forbidden. Where nothing is said, a model that reasons all the same is let."""
    thinking = body.thinking
    if thinking is None:
        return None
    if thinking.type == "disabled":
        return 0
    if thinking.budget_tokens is not None and thinking.budget_tokens < 1:
        raise Problem("thinking.budget_tokens must be at least 1", param="thinking.budget_tokens")
    return thinking.budget_tokens


def _effort(body: CountRequest) -> Values:
    effort = body.output_config.effort if body.output_config else None
    if effort is None:
        return {}
    if effort not in _EFFORTS:
        raise Problem(
            f"output_config.effort must be one of {', '.join(_EFFORTS)}, not {effort!r}", param="output_config.effort"
        )
    return {"reasoning_effort": _EFFORTS[effort]}


def _grammar(body: CountRequest) -> Grammar | None:
    form = body.output_config.format if body.output_config else None
    if form is None:
        return None
    if form.type != "json_schema":
        raise Problem(f"output_config.format.type must be json_schema, not {form.type!r}", param="output_config.format.type")
    return Grammar("json_schema", msgspec.json.encode(form.schema).decode())


def _sampling(body: MessagesRequest) -> dict[str, Any]:
    if body.max_tokens < 0:
        raise Problem(f"max_tokens must be 0 or more, not {body.max_tokens}", param="max_tokens")
    given: dict[str, Any] = {"max_tokens": body.max_tokens}
    for name in ("temperature", "top_k", "top_p"):
        if getattr(body, name) is not None:
            given[name] = getattr(body, name)
    if body.stop_sequences:
        given["stop"] = tuple(body.stop_sequences)
    return given
