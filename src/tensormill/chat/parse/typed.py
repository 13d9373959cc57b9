"""Values of XML-style parameters as JSON, typed by the tool's schema: `5` is a number only where the tool wants one."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 100_000  # characters of a Python literal
_KINDS = ("string", "integer", "number", "boolean", "object", "array", "null")


class Tools:
    """The tools of a request by name, in OpenAI's, Anthropic's or a bare shape; `given` is false where none were named."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] | None) -> None:
        self.given = tools is not None
        self._parameters: dict[str, Mapping[str, Any]] = {}
        for tool in tools or ():
            function = tool.get("function", tool)
            if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
                continue
            schema = function.get("parameters") or function.get("input_schema") or {}
            self._parameters[function["name"]] = schema if isinstance(schema, Mapping) else {}

    def __bool__(self) -> bool:
        """Whether calls may come at all: true also where nobody said which tools there are."""
        return bool(self._parameters) or not self.given

    def knows(self, name: str) -> bool:
        """Whether there is such a tool, or nobody said which there are."""
        return not self.given or name in self._parameters

    def schema(self, name: str, key: str) -> Any:
        """The schema of a parameter; None if there is none."""
        properties = self._parameters.get(name, {}).get("properties")
        return properties.get(key) if isinstance(properties, Mapping) else None


def kinds(schema: Any) -> frozenset[str]:
    """JSON types that a schema allows; empty if it does not say."""
    if not isinstance(schema, Mapping):
        return frozenset()
    stated = schema.get("type")
    if isinstance(stated, (str, list)):
        return frozenset([stated] if isinstance(stated, str) else [k for k in stated if isinstance(k, str)])
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return frozenset(_kind(v) for v in values)
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(word), list):
            parts = [kinds(part) for part in schema[word]]
            return frozenset().union(*parts) if all(parts) or word == "allOf" else frozenset()
    return frozenset({"object"}) if "properties" in schema else frozenset()


def as_json(text: str, schema: Any) -> str:
    """A parameter's text as JSON of a type that the schema allows, else as a string. Without a schema: what it looks like."""
    allowed = kinds(schema).intersection(_KINDS)
    if allowed != {"string"}:
        for candidate in (text.strip(), text.strip().lower()):
            found = _parsed(candidate)
            if found is not None and _fits(_kind(found[0]), allowed):
                return json.dumps(found[0], ensure_ascii=False)
            if candidate not in ("true", "false", "null", "True", "False", "None", "Null"):
                break
    if allowed & {"array", "object"} and text.lstrip()[:1] in ("[", "{"):  # some models write them as Python does
        return from_python(text) or json.dumps(text, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False)


def from_python(text: str) -> str | None:
    """A Python literal (or JSON) as JSON; None if it is neither."""
    found = _parsed(text.strip())
    if found is None and len(text) <= _LONGEST:
        try:
            found = (ast.literal_eval(text.strip()),)
            json.dumps(found, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return None
    return None if found is None else json.dumps(found[0], ensure_ascii=False)


def _fits(kind: str, allowed: frozenset[str]) -> bool:
    if not allowed:
        return kind != "string"  # a quoted string may be meant with its quotes
    return kind in allowed or (kind == "integer" and "number" in allowed)


def _parsed(text: str) -> tuple[Any] | None:
    try:
        value = json.loads("null" if text == "none" else text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return (value,)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"
