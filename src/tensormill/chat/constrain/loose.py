"""JSON schemas for values that are no JSON, as rules: bare keys and quotes of a format's own (Gemma 4), Python (LFM2), or a
tree of tags (MiniMax M3)."""

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


@dataclass(frozen=True, slots=True)
class Style:
    """How values are written: `string` makes the expression of one up to what stands behind it; `key` and `top` are what
    stands before a value in an object, `behind` is behind it."""

    string: Callable[[Rules, str, str], str]
    constant: Callable[[Any], str]
    key: str
    top: str
    comma: str
    braces: tuple[str, str]  # around the outermost object
    inner: tuple[str, str] = ("{", "}")  # around others
    brackets: tuple[str, str] = ("[", "]")
    behind: str = ""
    item: tuple[str, str] = ("", "")  # around each value in a list
    anything: tuple[str, ...] = (*_NUMBERS, *_CONSTANTS, "string")  # where a schema has no type


def quoted(quote: str) -> Style:
    """Bare keys, strings between `quote`s."""

    def string(rules: Rules, name: str, behind: str) -> str:
        return f"{rules.literal(quote)} {rules.until(name, quote)}"

    def constant(value: Any) -> str:
        return quote + value + quote if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return Style(string, constant, "{key}:", "{key}:", ",", ("{", "}"))


def nested(mark: str) -> Style:
    """A tag for each key, behind the mark, and `item` for each value of a list; strings are bare."""
    key, behind = mark + "<{key}>", mark + "</{key}>"
    item = (mark + "<item>", mark + "</item>")

    def string(rules: Rules, name: str, behind: str) -> str:
        return rules.until(name, behind)

    def constant(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return Style(string, constant, key, key, "", ("", ""), ("", ""), ("", ""), behind, item, ("string",))


PYTHON = Style(lambda _rules, _name, _behind: _PYTHON_STRING, repr, "'{key}': ", "{key}=", ", ", ("", ""))


def loose(rules: Rules, style: Style, schema: Mapping[str, Any], name: str, strict: bool, title: str) -> str:
    """The rule for the arguments of a call. RequestError, where the tool is strict, for a keyword that has no rule here."""
    return _Loose(rules, style, schema, strict, title).outermost(schema, name)


class _Loose:
    """Rules for one tool."""

    def __init__(self, rules: Rules, style: Style, root: Mapping[str, Any], strict: bool, title: str) -> None:
        self._rules, self._style, self._root, self._strict, self._title = rules, style, root, strict, title
        self._referred: dict[tuple[str, str], str] = {}

    def outermost(self, schema: Mapping[str, Any], name: str) -> str:
        """The object of all arguments."""
        self._check(schema)
        return self._object(schema, name, self._style.top, self._style.braces)

    def _check(self, schema: Mapping[str, Any]) -> None:
        odd = next((k for k in schema if k not in _KNOWN and k not in _INFORMING and not k.startswith("x-")), None)
        if odd and self._strict:
            raise RequestError(f"{self._title}: the keyword {odd!r} cannot be enforced in this model's chat format")

    def value(self, schema: Any, name: str, behind: str) -> str:
        """The name of a rule for this schema and what stands behind it; any scalar where it says nothing."""
        schema = schema if isinstance(schema, Mapping) else {}
        self._check(schema)
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"], name, behind)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list) and values:
            return self._rules.rule(name, " | ".join(self._constant(v, behind) for v in values))
        if isinstance(schema.get("anyOf"), list) and schema["anyOf"]:
            parts = [self.value(part, f"{name}_{i}", behind) for i, part in enumerate(schema["anyOf"])]
            return self._rules.rule(name, " | ".join(parts))
        return self._typed(schema, name, behind)

    def _typed(self, schema: Mapping[str, Any], name: str, behind: str) -> str:
        stated = schema.get("type", "object" if "properties" in schema else None)
        types = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else self._style.anything
        bodies = []
        for i, kind in enumerate(types):
            bodies.append(self._kind(kind, schema, f"{name}_{i}", behind))
        return self._rules.rule(name, " | ".join(bodies))

    def _kind(self, kind: Any, schema: Mapping[str, Any], name: str, behind: str) -> str:
        if kind in _CONSTANTS:
            return "(" + " | ".join(self._constant(v, behind) for v in _CONSTANTS[kind]) + ")"
        if kind not in ("array", "object", *_NUMBERS):
            return self._style.string(self._rules, name, behind)
        if kind == "array":
            made = self._array(schema, name)
        else:
            made = _NUMBERS.get(kind) or self._object(schema, name, self._style.key, self._style.inner)
        return f"{made} {self._rules.literal(behind)}" if behind else made

    def _array(self, schema: Mapping[str, Any], name: str) -> str:
        style, literal = self._style, self._rules.literal
        value = self.value(schema.get("items", {}), name + "_item", style.item[1])
        item = f"{literal(style.item[0])} {value}"
        begin, end = map(literal, style.brackets)
        return self._rules.rule(name, f"{begin} ({item} ({literal(style.comma)} {item})*)? {end}")

    def _object(self, schema: Mapping[str, Any], name: str, before: str, braces: tuple[str, str]) -> str:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        required, keys = set(schema.get("required") or ()), list(properties)
        literal = self._rules.literal
        first, more = (self._rules.rule(f"{name}_{x}", literal(braces[1])) for x in "fm")
        for at in range(len(keys) - 1, -1, -1):
            value = self.value(properties[keys[at]], f"{name}_v{at}", self._style.behind.replace("{key}", keys[at]))
            text = before.replace("{key}", keys[at])
            skips = ("", "") if keys[at] in required else (f" | {first}", f" | {more}")
            first, more = (
                self._rules.rule(f"{name}_f{at}", f"{literal(text)} {value} {more}" + skips[0]),
                self._rules.rule(f"{name}_m{at}", f"{literal(self._style.comma + text)} {value} {more}" + skips[1]),
            )
        return self._rules.rule(name, f"{literal(braces[0])} {first}")

    def _reference(self, reference: str, name: str, behind: str) -> str:
        if (reference, behind) in self._referred:
            return self._referred[reference, behind]
        self._referred[reference, behind] = name  # before its rule is made: it may refer to itself
        node: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) and part else node
        if not isinstance(node, Mapping) or not reference.startswith("#") or "$ref" in node:
            if self._strict:
                raise RequestError(f"{self._title}: the reference {reference!r} cannot be followed")
            node = {}
        return self.value(node, name, behind)

    def _constant(self, value: Any, behind: str) -> str:
        return self._rules.literal(self._style.constant(value) + behind)
