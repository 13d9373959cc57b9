"""A request of /v1/responses → the internal one."""

from __future__ import annotations

from typing import Any

from tensormill.engine.messages import Grammar
from tensormill.server.openai import fields
from tensormill.server.openai.fields import JsonSchema, ResponseFormat, Sampling, checked
from tensormill.server.openai.responses.types import Item, Part, ResponsesRequest, ResponseTool, ToolChoice
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Values

_LOGPROBS = "message.output_text.logprobs"


def ask(got: ResponsesRequest, before: list[Values]) -> Ask:
    """The internal request; `before` are the messages of the response that this one continues. Its own are `messages`."""
    if got.background:
        raise Problem("background is not supported: responses are answered at once", param="background")
    tools = _tools(got)
    values = dict(got.chat_template_kwargs)
    effort = got.reasoning.effort if got.reasoning else None
    if effort is not None:
        values.setdefault("reasoning_effort", effort)
    thinking, budget = fields.thinking(effort, None, None, values)
    system: list[Values] = [{"role": "system", "content": got.instructions}] if got.instructions else []
    return Ask(
        model=got.model,
        messages=[*system, *before, *messages(got)],
        tools=tools,
        tool_choice=_tool_choice(got, [t["function"]["name"] for t in tools or []]),
        parallel_tool_calls=got.parallel_tool_calls is not False,
        thinking=thinking,
        thinking_budget=budget,
        template_values=values,
        sampling=_sampling(got),
        grammar=_grammar(got),
        logprobs=checked("top_logprobs", got.top_logprobs or 0, 0, 20) if _LOGPROBS in (got.include or ()) else -1,
        timeout=got.timeout,
    )


def _sampling(got: ResponsesRequest) -> dict[str, Any]:
    most = got.max_output_tokens
    given = Sampling(
        temperature=got.temperature, top_p=got.top_p, top_k=got.top_k, min_p=got.min_p, seed=got.seed, stop=got.stop,
        max_tokens=None if most is None else checked("max_output_tokens", most, 1, 1 << 31),
    )  # fmt: skip
    return given.sampling()


def messages(got: ResponsesRequest) -> list[Values]:
    """The input as chat messages: calls and reasoning join the assistant's turn that they belong to."""
    if isinstance(got.input, str):
        return [{"role": "user", "content": got.input}]
    made: list[Values] = []
    for number, item in enumerate(got.input):
        _add(made, item, number)
    return [{k: v for k, v in message.items() if k != "open"} for message in made]


def _add(made: list[Values], item: Item, number: int) -> None:
    where = f"input[{number}]"
    match item.type:
        case "message":
            if item.role is None:
                raise Problem(f"{where} is a message without a role", param=f"{where}.role")
            text = _text(item.content, f"{where}.content")
            if item.role == "assistant" and made and made[-1].get("open"):
                made[-1] |= {"content": text, "open": False}
            else:
                made.append({"role": item.role, "content": text})
        case "reasoning":
            thought = _text(item.content or item.summary, f"{where}.content")
            made.append({"role": "assistant", "content": "", "reasoning_content": thought, "open": True})
        case "function_call":
            call = {"name": item.name or "", "arguments": item.arguments or "{}"}
            if not made or made[-1]["role"] != "assistant":
                made.append({"role": "assistant", "content": ""})
            made[-1]["open"] = False
            made[-1].setdefault("tool_calls", []).append({"id": item.call_id or "", "type": "function", "function": call})
        case "function_call_output":
            output = _text(item.output, f"{where}.output")
            made.append({"role": "tool", "tool_call_id": item.call_id or "", "content": output})
        case _:
            raise Problem(f"items of type {item.type!r} are not supported", param=f"{where}.type")


def _text(content: str | list[Part] | None, where: str) -> str:
    if not isinstance(content, list):
        return content or ""
    for part in content:
        if part.text is None and part.refusal is None:
            raise Problem(f"parts of type {part.type!r} are not supported by this model", param=where)
    return "\n".join(p.text if p.text is not None else p.refusal or "" for p in content)


def _tools(got: ResponsesRequest) -> list[Values] | None:
    for number, tool in enumerate(got.tools or []):
        if tool.type != "function" or not tool.name:
            raise Problem(f"tools of type {tool.type!r} are not supported; only functions", param=f"tools[{number}].type")
    return [_function(tool) for tool in got.tools or []] or None


def _function(tool: ResponseTool) -> Values:
    stated = {k: getattr(tool, k) for k in ("name", "description", "parameters", "strict")}
    return {"type": "function", "function": {k: v for k, v in stated.items() if v is not None}}


def _tool_choice(got: ResponsesRequest, names: list[str]) -> str:
    choice = got.tool_choice
    return fields.tool_choice(choice.name if isinstance(choice, ToolChoice) else None, choice, names)


def _grammar(got: ResponsesRequest) -> Grammar | None:
    form = got.text.format if got.text else None
    if form is None:
        return None
    schema = JsonSchema(form.schema, form.name, form.strict) if form.schema is not None else None
    return fields.grammar(ResponseFormat(form.type, schema, form.grammar), param="text.format")
