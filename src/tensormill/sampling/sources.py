"""Grammars as requests give them → what llguidance compiles; every kind is checked here before anything runs.

A `composed` grammar is how chat formats say "text, then a call whose arguments match this schema" (chat/constrain): JSON
with `lark`, rules which name parts as `@name`, and `parts`: name → `schema`, `strict` and `title`, or a `kind` and `text` of
their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from llguidance import LLMatcher

from tensormill.bounds import MOST_GRAMMAR
from tensormill.errors import RequestError
from tensormill.sampling.gbnf import to_lark
from tensormill.sampling.schema import Effort, checked, parsed

# at most a space, or a line break and an indentation: models that may write white space for ever sometimes do
WHITE = r" |\n[ ]{0,32}|\n\t{0,16}"
_OPTIONS = {"whitespace_pattern": WHITE, "lenient": False, "coerce_one_of": False}


def source(kind: str, text: str) -> str:
    """llguidance's form of a grammar; RequestError names what is wrong, and where."""
    if kind not in _KINDS:
        raise RequestError(f"there is no kind of grammar {kind!r}; choose one of: {', '.join(_KINDS)}")
    if len(text) > MOST_GRAMMAR:
        raise RequestError(f"the grammar, schemas included, has {len(text)} characters; at most {MOST_GRAMMAR} are taken")
    return _KINDS[kind](text)


def _object(text: str) -> str:
    return _schema({"type": "object"})


def _json_schema(text: str) -> str:
    return _schema(checked(parsed(text, "json_schema"), strict=True, title="json_schema"))


def _schema(schema: Any) -> str:
    return LLMatcher.grammar_from_json_schema(_json(schema), overrides=_OPTIONS)  # type: ignore[arg-type]


def _regex(text: str) -> str:
    return str(LLMatcher.grammar_from_regex(text))


def _lark(text: str) -> str:
    return _json({"grammars": [{"lark_grammar": text}]})


def _gbnf(text: str) -> str:
    return _lark(to_lark(text))


def _composed(text: str) -> str:
    """One list of grammars: the rules, and each part under the name by which they call it."""
    whole = parsed(text, "grammar")
    grammars: list[Mapping[str, Any]] = [{"lark_grammar": whole["lark"]}]
    effort = Effort()
    for name, part in whole["parts"].items():
        if "kind" in part:
            made = source(part["kind"], part["text"])
        else:
            made = _schema(checked(part["schema"], strict=part["strict"], title=part["title"], effort=effort))
        grammars.append({**json.loads(made)["grammars"][0], "name": name})
    return json.dumps({"grammars": grammars})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_KINDS: dict[str, Callable[[str], str]] = {
    "json_object": _object,
    "json_schema": _json_schema,
    "regex": _regex,
    "lark": _lark,
    "gbnf": _gbnf,
    "composed": _composed,
}
