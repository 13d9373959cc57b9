"""JSON schemas for values that are no JSON, as rules: bare keys and quotes of a format's own (Gemma 4), or Python (LFM2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensormill.chat.constrain.rules import Rules
from tensormill.errors import RequestError

_NUMBERS = {
    "integer": r"/-?(0|[1-9][0-9]{0,18})/",
    "number": r"/-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?/",
}
_KNOWN = frozenset({"type", "properties", "required", "items", "enum", "const", "anyOf", "$ref", "$defs", "definitions"})
_INFORMING = frozenset({"title", "description", "default", "examples", "additionalProperties", "$schema", "$id", "$comment"})
_PYTHON_STRING = r"""/'([^'\\\n]|\\[^\n])*'|\x22([^\x22\\\n]|\\[^\n])*\x22/"""


_CONSTANTS: dict[Any, tuple[Any, ...]] = {"boolean": (True, False), "null": (None,)}
_ANYTHING = [*_NUMBERS, *_CONSTANTS, "string"]


@dataclass(frozen=True, slots=True)
class Style:
    """How values are written: `string` makes the expression of one; `key` and `top` what stands before a value in an object."""

    string: Callable[[Rules, str], str]
    constant: Callable[[Any], str]
    key: str
    top: str
    comma: str
    braces: tuple[str, str]  # around the outermost object


def quoted(quote: str) -> Style:
    """Bare keys, strings between `quote`s."""

    def string(rules: Rules, name: str) -> str:
        return f"{rules.literal(quote)} {rules.until(name, quote)}"

    def constant(value: Any) -> str:
        return quote + value + quote if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return Style(string, constant, "{key}:", "{key}:", ",", ("{", "}"))


PYTHON = Style(lambda _rules, _name: _PYTHON_STRING, repr, "'{key}': ", "{key}=", ", ", ("", ""))


def loose(rules: Rules, style: Style, schema: Mapping[str, Any], name: str, strict: bool, title: str) -> str:
    """The rule for the arguments of a call. RequestError, where the tool is strict, for a keyword that has no rule here."""
    return _Loose(rules, style, schema, strict, title).outermost(schema, name)


class _Loose:
    """Rules for one tool."""

    def __init__(self, rules: Rules, style: Style, root: Mapping[str, Any], strict: bool, title: str) -> None:
        self._rules, self._style, self._root, self._strict, self._title = rules, style, root, strict, title
        self._referred: dict[str, str] = {}

    def outermost(self, schema: Mapping[str, Any], name: str) -> str:
        """The object of all arguments."""
        self._check(schema)
        return self._object(schema, name, self._style.top, self._style.braces)

    def _check(self, schema: Mapping[str, Any]) -> None:
        odd = next((k for k in schema if k not in _KNOWN and k not in _INFORMING and not k.startswith("x-")), None)
        if odd and self._strict:
            raise RequestError(f"{self._title}: the keyword {odd!r} cannot be enforced in this model's chat format")

    def value(self, schema: Any, name: str) -> str:
        """The name of a rule for this schema; any scalar where it says nothing."""
        schema = schema if isinstance(schema, Mapping) else {}
        self._check(schema)
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"], name)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list) and values:
            return self._rules.rule(name, " | ".join(self._constant(v) for v in values))
        if isinstance(schema.get("anyOf"), list) and schema["anyOf"]:
            parts = [self.value(part, f"{name}_{i}") for i, part in enumerate(schema["anyOf"])]
            return self._rules.rule(name, " | ".join(parts))
        return self._typed(schema, name)

    def _typed(self, schema: Mapping[str, Any], name: str) -> str:
        stated = schema.get("type", "object" if "properties" in schema else None)
        types = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else _ANYTHING
        bodies = []
        for i, kind in enumerate(types):
            bodies.append(self._kind(kind, schema, f"{name}_{i}"))
        return self._rules.rule(name, " | ".join(bodies))

    def _kind(self, kind: Any, schema: Mapping[str, Any], name: str) -> str:
        if kind in _CONSTANTS:
            return "(" + " | ".join(self._constant(v) for v in _CONSTANTS[kind]) + ")"
        if kind == "array":
            return self._array(schema, name)
        if kind == "object":
            return self._object(schema, name, self._style.key, ("{", "}"))
        return _NUMBERS.get(kind) or self._style.string(self._rules, name)

    def _array(self, schema: Mapping[str, Any], name: str) -> str:
        item = self.value(schema.get("items", {}), name + "_item")
        return self._rules.rule(name, f'"[" ({item} ({json.dumps(self._style.comma)} {item})*)? "]"')

    def _object(self, schema: Mapping[str, Any], name: str, before: str, braces: tuple[str, str]) -> str:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required, keys = set(schema.get("required") or ()), list(properties)
        first, more = (self._rules.rule(f"{name}_{x}", json.dumps(braces[1])) for x in "fm")
        for at in range(len(keys) - 1, -1, -1):
            value, text = self.value(properties[keys[at]], f"{name}_v{at}"), before.replace("{key}", keys[at])
            bare, comma = (json.dumps(x + text, ensure_ascii=False) for x in ("", self._style.comma))
            skips = ("", "") if keys[at] in required else (f" | {first}", f" | {more}")
            first, more = (
                self._rules.rule(f"{name}_f{at}", f"{bare} {value} {more}" + skips[0]),
                self._rules.rule(f"{name}_m{at}", f"{comma} {value} {more}" + skips[1]),
            )
        return self._rules.rule(name, f"{json.dumps(braces[0])} {first}")

    def _reference(self, reference: str, name: str) -> str:
        if reference in self._referred:
            return self._referred[reference]
        self._referred[reference] = name  # before its rule is made: it may refer to itself
        node: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) and part else node
        if not isinstance(node, Mapping) or not reference.startswith("#") or "$ref" in node:
            if self._strict:
                raise RequestError(f"{self._title}: the reference {reference!r} cannot be followed")
            node = {}
        return self.value(node, name)

    def _constant(self, value: Any) -> str:
        return self._rules.literal(self._style.constant(value))
