"""Calls of tools, as rules: the canonical way in which a format writes them, with arguments that match the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensormill.chat.constrain.loose import PYTHON, loose, nested, quoted
from tensormill.chat.constrain.rules import TEXT, Rules
from tensormill.chat.parse import Writing
from tensormill.chat.parse.typed import kinds
from tensormill.errors import RequestError

_FIELDS = {"number": "/[0-9]{1,3}/", "id": "/[A-Za-z0-9]{9}/"}
_TEXTUAL = ("minLength", "maxLength", "pattern", "format")


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a request, whatever API it came by."""

    name: str
    schema: Mapping[str, Any]
    strict: bool


def tool(given: Mapping[str, Any]) -> Tool:
    """A tool in OpenAI's, Anthropic's or a bare shape; RequestError if it is none."""
    function = given.get("function", given)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise RequestError("a tool has no name")
    schema = function.get("parameters") or function.get("input_schema") or {}
    if not isinstance(schema, Mapping):
        raise RequestError(f"the parameters of tool {function['name']!r} must be a JSON schema")
    strict = bool(function.get("strict", given.get("strict", False)))
    return Tool(function["name"], {"type": "object", **schema}, strict)


def write_calls(rules: Rules, writing: Writing, tools: Sequence[Tool], opens: str, between: str | None) -> str:
    """The rule for calls of these tools behind `opens`; `between` two of them, None if there may be only one.

    What stands in front of a call is one literal with its beginning: a lexer takes the longest one that fits, and the end of
    all calls may begin in the same way.
    """
    firsts, nexts = [], []
    for number, one in enumerate(tools):
        rest = rules.rule(f"rest_{number}", f"{_arguments(rules, writing, one, number)} {rules.literal(writing.end)}")
        firsts.append(f"{_filled(rules, opens + writing.begin, one.name)} {rest}")
        nexts.append(f"{_filled(rules, (between or '') + writing.begin, one.name)} {rest}")
    first = rules.rule("first_call", " | ".join(firsts))
    if between is None:
        return f"{first} {rules.literal(writing.closes)}"
    return f"{first} {rules.rule('next_call', ' | '.join(nexts))}* {rules.literal(writing.closes)}"


def _filled(rules: Rules, begin: str, name: str) -> str:
    """What a call begins with; numbers and ids are the model's to choose."""
    out = []
    for piece in re.split(r"(\{name\}|\{number\}|\{id\})", begin):
        if piece[1:-1] in _FIELDS and piece.startswith("{"):
            out.append(_FIELDS[piece[1:-1]])
        else:
            out.append(piece if piece != "{name}" else name)
    joined: list[str] = []
    for piece in out:  # text and name are one literal, lest a lexer cut between them
        if joined and piece not in _FIELDS.values() and joined[-1] not in _FIELDS.values():
            joined[-1] += piece
        elif piece:
            joined.append(piece)
    return " ".join(p if p in _FIELDS.values() else rules.literal(p) for p in joined)


def _arguments(rules: Rules, writing: Writing, one: Tool, number: int) -> str:
    title = f"the parameters of tool {one.name!r}"
    if writing.quote or writing.python or writing.tree:
        style = quoted(writing.quote) if writing.quote else nested(writing.tree) if writing.tree else PYTHON
        return loose(rules, style, one.schema, f"loose_{number}", one.strict, title)
    if writing.parameter is not None:
        return _parameters(rules, writing.parameter, one, number, title)
    return rules.part(f"schema_{number}", schema=one.schema, strict=one.strict, title=title)


def _parameters(rules: Rules, around: tuple[str, str, str], one: Tool, number: int, title: str) -> str:
    """Parameters in the order of the schema, the required ones all, others perhaps; `between` only where two are written."""
    before, behind, between = around
    properties = one.schema.get("properties")
    keys = list(properties) if isinstance(properties, Mapping) else []
    required = set(one.schema.get("required") or ())
    first, more = f"first_{number}_{len(keys)}", f"more_{number}_{len(keys)}"
    for name in (first, more):
        rules.rule(name, '""')
    for at in range(len(keys) - 1, -1, -1):
        key = keys[at]
        value = _value(rules, one, key, f"{number}_{at}", behind, f"{title}, {key!r}")
        flag, kind = ("true", "string") if _is_text(one.schema, key) else ("false", "json")
        opened = before.replace("{flag}", flag).replace("{type}", kind).replace("{key}", key)
        here = f"{rules.literal(opened)} {value} {more}", f"{rules.literal(between + opened)} {value} {more}"
        skips = ("", "") if key in required else (f" | {first}", f" | {more}")
        first = rules.rule(f"first_{number}_{at}", here[0] + skips[0])
        more = rules.rule(f"more_{number}_{at}", here[1] + skips[1])
    return first


def _is_text(schema: Mapping[str, Any], key: str) -> bool:
    allowed = kinds(resolved(schema, schema["properties"][key]))
    return not allowed or "string" in allowed


def _value(rules: Rules, one: Tool, key: str, name: str, behind: str, title: str) -> str:
    """A value and what closes it: a string is text as it is, everything else JSON."""
    sub = resolved(one.schema, one.schema["properties"][key])
    if not _is_text(one.schema, key):
        whole = {**{k: one.schema[k] for k in ("$defs", "definitions") if k in one.schema}, **sub}
        part = rules.part(f"schema_{name}", schema=whole, strict=one.strict, title=title)
        return f"{part} {rules.literal(behind)}"
    values = sub.get("enum", [sub["const"]] if "const" in sub else None)
    if isinstance(values, list) and values:
        texts = [v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
        return f"({' | '.join(rules.literal(text + behind) for text in texts)})"
    held = next((word for word in _TEXTUAL if word in sub), None)
    if held and one.strict:
        raise RequestError(f"{title}: the keyword {held!r} cannot be enforced in this model's chat format")
    return rules.until(f"text_{name}", behind, TEXT)


def resolved(root: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """A schema behind its local references; {} for anything that is none."""
    for _ in range(20):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        node: Any = root
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, Mapping) else None
        schema = node
    return schema if isinstance(schema, Mapping) else {}
