"""JSON schemas: what is enforced, what only informs, and what is refused by keyword and path. Nothing is ignored silently.

llguidance passes over keywords that it does not know and names no paths, hence the walk here. A schema that nobody promised to
keep (tools without `strict`) is loosened instead: what cannot be enforced is left out of it, and said so in the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher

from tensormill.bounds import MOST_CHECKED, MOST_SUBSCHEMAS
from tensormill.errors import RequestError

log = logging.getLogger(__name__)
ENFORCED = frozenset({
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions", "properties", "required",
    "additionalProperties", "patternProperties", "minProperties", "maxProperties", "items", "prefixItems", "additionalItems",
    "minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "nullable",
})  # fmt: skip
INFORMING = frozenset({
    "title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "id",
    "$comment", "$anchor", "$dynamicAnchor", "$vocabulary", "contentEncoding", "contentMediaType", "contentSchema",
    "discriminator", "externalDocs", "xml", "markdownDescription", "enumDescriptions", "enumNames", "propertyOrdering",
    "strict",
})  # fmt: skip
_TRIVIAL = {"uniqueItems": False, "unevaluatedProperties": True, "unevaluatedItems": True, "propertyNames": True, "not": False}
_MAPS = ("$defs", "definitions", "properties", "patternProperties")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_ONE = ("items", "additionalProperties", "additionalItems")
_BROAD = ["type", "properties", "properties", "required"]  # blamed last, the more often the later
_DEEPEST = 200

Path = tuple[str | int, ...]


def parsed(text: str, title: str) -> Any:
    """JSON text; RequestError says where it is broken."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{title} is no JSON: {error}") from None


@dataclass
class Effort:
    """What may still be spent on finding faults in the schemas of a request: characters to check."""

    left: int = MOST_CHECKED


def checked(schema: Any, *, strict: bool, title: str, effort: Effort | None = None) -> Any:
    """The schema as it can be enforced; with `strict` all of it, or RequestError with the keyword and its path."""
    if not isinstance(schema, (dict, bool)):
        raise RequestError(f"{title} must be an object or a boolean, not {json.dumps(schema)[:40]}")
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    schema = _walked(schema, (), strict, title)
    size = _size(schema)
    if size > MOST_SUBSCHEMAS:
        raise RequestError(f"{title} has {size} schemas in it; at most {MOST_SUBSCHEMAS} are taken")
    return schema if _error(schema) is None else _Mending(schema, strict, title, effort or Effort()).mended()


def _walked(node: Any, path: Path, strict: bool, title: str) -> Any:
    """A copy with nothing in it that llguidance would pass over."""
    if len(path) > _DEEPEST:
        raise RequestError(f"{title} is nested too deeply at {_shown(path)}")
    if not isinstance(node, dict):
        return node
    kept: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword in ENFORCED:
            kept[keyword] = _inside(keyword, value, path, strict, title)
        elif not _harmless(keyword, value):
            if strict:
                raise RequestError(f"{title}: the keyword {keyword!r} at {_shown(path)} cannot be enforced")
            log.warning("%s: the keyword %r at %s cannot be enforced and is left out", title, keyword, _shown(path))
        elif keyword in ("$id", "id", "$anchor", "$schema"):
            kept[keyword] = value
    if kept.pop("nullable", False) is True:
        return {"anyOf": [kept, {"type": "null"}]} if path else kept
    return kept


def _harmless(keyword: str, value: Any) -> bool:
    informs = keyword in INFORMING or (keyword.startswith("x-") and keyword != "x-guidance")
    return informs or (keyword in _TRIVIAL and value is _TRIVIAL[keyword])


def _inside(keyword: str, value: Any, path: Path, strict: bool, title: str) -> Any:
    if keyword in _MAPS and isinstance(value, dict):
        return {k: _walked(v, (*path, keyword, k), strict, title) for k, v in value.items()}
    if keyword in _LISTS and isinstance(value, list):
        return [_walked(v, (*path, keyword, i), strict, title) for i, v in enumerate(value)]
    return _walked(value, (*path, keyword), strict, title) if keyword in _ONE else value


def _children(node: Any) -> Iterator[Path]:
    if not isinstance(node, dict):
        return
    for keyword in _MAPS:
        if isinstance(node.get(keyword), dict):
            yield from ((keyword, name) for name in node[keyword])
    for keyword in _LISTS:
        if isinstance(node.get(keyword), list):
            yield from ((keyword, i) for i in range(len(node[keyword])))
    yield from ((keyword,) for keyword in _ONE if isinstance(node.get(keyword), dict))


def _size(node: Any) -> int:
    """How many schemas it is made of."""
    return 1 + sum(_size(_at(node, child)) for child in _children(node))


def _at(node: Any, path: Path) -> Any:
    for part in path:
        node = node[part]
    return node


class _Mending:
    """Finds what llguidance refuses in a schema: innermost first, each part once. With `strict` the first one is told."""

    def __init__(self, schema: Any, strict: bool, title: str, effort: Effort) -> None:
        self._schema, self._strict, self._title, self._effort = schema, strict, title, effort

    def mended(self) -> Any:
        """The schema without what cannot be enforced; RequestError if all of it was to be kept."""
        self._visit(())
        error = _error(self._schema)
        if error is None:
            return self._schema
        if self._strict:
            raise RequestError(f"{self._title} cannot be enforced: {error}")
        log.warning("%s: too much cannot be enforced, any object is taken: %s", self._title, error)
        return {"type": "object"}

    def _visit(self, path: Path) -> None:
        if self._fault(path) is None:
            return
        for child in list(_children(_at(self._schema, path))):
            self._visit((*path, *child))
        while error := self._fault(path):
            keyword = self._culprit(path)
            where = f"{keyword!r} at {_shown(path)}" if keyword else f"what stands at {_shown(path)}"
            if self._strict:
                raise RequestError(f"{self._title}: {where} cannot be enforced: {error}")
            log.warning("%s: %s cannot be enforced and is left out: %s", self._title, where, error)
            if not _loosened(self._schema, path, keyword):
                return

    def _fault(self, path: Path) -> str | None:
        """Why a part is refused on its own; None too once the checks have cost enough."""
        text = _json(_standing_alone(self._schema, path))
        self._effort.left -= len(text)
        return _validated(text) if self._effort.left >= 0 else None

    def _culprit(self, path: Path) -> str | None:
        """The keyword of a refused part without which it is not."""
        node = _at(self._schema, path)
        whole: dict[str, Any] = dict(node) if isinstance(node, dict) else {}
        for keyword in sorted((k for k in whole if k not in ("$defs", "definitions")), key=_BROAD.count):
            del node[keyword]
            cured = self._fault(path) is None and self._effort.left >= 0
            node.clear()
            node.update(whole)
            if cured:
                return keyword
        return None


def _standing_alone(schema: Any, path: Path) -> Any:
    """One subschema as a schema; references in it still mean places in the whole."""
    part = _at(schema, path)
    if not path or not _refers(part):
        return part
    whole = {**schema, "$id": "urn:whole"} if isinstance(schema, dict) else schema
    return {"$ref": "urn:whole" + _pointer(path), "$defs": {"whole": whole}}


def _refers(node: Any) -> bool:
    return isinstance(node, dict) and ("$ref" in node or any(_refers(_at(node, child)) for child in _children(node)))


def _loosened(schema: Any, path: Path, keyword: str | None) -> bool:
    """Leave out, in place, what cannot be enforced; whether there was anything to leave out."""
    node = _at(schema, path)
    if keyword == "oneOf" and "anyOf" not in node:
        node["anyOf"] = node.pop("oneOf")
    elif keyword is not None:
        del node[keyword]
    elif path and isinstance(_at(schema, path[:-1]), (dict, list)):
        _at(schema, path[:-1])[path[-1]] = {}
        return bool(node)
    else:
        return False
    return True


def _error(schema: Any) -> str | None:
    return _validated(_json(schema))


def _json(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False)


def _validated(text: str) -> str | None:
    try:
        grammar = LLMatcher.grammar_from_json_schema(text, overrides={"lenient": False, "coerce_one_of": False})
    except ValueError as error:  # nested too deeply
        return str(error)
    message = str(LLMatcher.validate_grammar(grammar))
    if not message or message.startswith("WARNING"):
        return None
    return " ".join(message.split("<state>", maxsplit=1)[0].split())[:300]


def _pointer(path: Path) -> str:
    return "#" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _shown(path: Path) -> str:
    """A pointer for messages: of a very long one only the end."""
    pointer = _pointer(path)
    return pointer if len(pointer) <= 200 else "#…" + pointer[-190:]
