"""JSON schemas for objects with bare keys and strings between quotes of a format's own (Gemma 4), as rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensormill.chat.constrain.rules import Rules
from tensormill.errors import RequestError

_SCALARS = {
    "integer": r"/-?(0|[1-9][0-9]{0,18})/",
    "number": r"/-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?/",
    "boolean": '("true" | "false")',
    "null": '"null"',
}
_KNOWN = frozenset({"type", "properties", "required", "items", "enum", "const", "anyOf", "$ref", "$defs", "definitions"})
_INFORMING = frozenset({"title", "description", "default", "examples", "additionalProperties", "$schema", "$id", "$comment"})


def loose(rules: Rules, quote: str, schema: Mapping[str, Any], name: str, strict: bool, title: str) -> str:
    """The rule for values of a schema. RequestError, where the tool is strict, for a keyword that has no rule here."""
    return _Loose(rules, quote, schema, strict, title).value(schema, name)


class _Loose:
    """Rules for one tool."""

    def __init__(self, rules: Rules, quote: str, root: Mapping[str, Any], strict: bool, title: str) -> None:
        self._rules, self._quote, self._root, self._strict, self._title = rules, quote, root, strict, title
        self._referred: dict[str, str] = {}

    def value(self, schema: Any, name: str) -> str:
        """The name of a rule for this schema; `any` JSON-like value where it says nothing."""
        schema = schema if isinstance(schema, Mapping) else {}
        odd = next((k for k in schema if k not in _KNOWN and k not in _INFORMING and not k.startswith("x-")), None)
        if odd and self._strict:
            raise RequestError(f"{self._title}: the keyword {odd!r} cannot be enforced in this model's chat format")
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
        types = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else [*_SCALARS, "string"]
        bodies = []
        for i, kind in enumerate(types):
            if kind in _SCALARS:
                bodies.append(_SCALARS[kind])
            elif kind == "array":
                bodies.append(self._array(schema, f"{name}_{i}"))
            elif kind == "object":
                bodies.append(self._object(schema, f"{name}_{i}"))
            else:
                bodies.append(f"{self._rules.literal(self._quote)} {self._rules.until(f'{name}_{i}', self._quote)}")
        return self._rules.rule(name, " | ".join(bodies))

    def _array(self, schema: Mapping[str, Any], name: str) -> str:
        item = self.value(schema.get("items", {}), name + "_item")
        return self._rules.rule(name, f'"[" ({item} ("," {item})*)? "]"')

    def _object(self, schema: Mapping[str, Any], name: str) -> str:
        properties = schema.get("properties")
        keys = list(properties) if isinstance(properties, Mapping) else []
        required = set(schema.get("required") or ())
        first, more = self._rules.rule(f"{name}_f", '"}"'), self._rules.rule(f"{name}_m", '"}"')
        for at in range(len(keys) - 1, -1, -1):
            key = keys[at]
            value = self.value(properties[key], f"{name}_v{at}") if isinstance(properties, Mapping) else ""
            bare, comma = json.dumps(f"{key}:", ensure_ascii=False), json.dumps(f",{key}:", ensure_ascii=False)
            skips = ("", "") if key in required else (f" | {first}", f" | {more}")
            first, more = (
                self._rules.rule(f"{name}_f{at}", f"{bare} {value} {more}" + skips[0]),
                self._rules.rule(f"{name}_m{at}", f"{comma} {value} {more}" + skips[1]),
            )
        return self._rules.rule(name, f'"{{" {first}')

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
        if isinstance(value, str):
            return self._rules.literal(self._quote + value + self._quote)
        return json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)
