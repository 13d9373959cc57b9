"""What a chat format is, as data: how an answer marks reasoning and tool calls. The table itself is `table.py`.

Patterns are those of `pattern.py`. `Writing` says the same the other way round, for whoever makes a model write a call
(grammars) or checks that what is written can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Channel = Literal["reasoning", "content"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker that switches the channel and is not shown. `start`: only before any text; `within`: only in that channel."""

    pattern: str
    channel: Channel
    start: bool = False
    within: Channel | None = None


@dataclass(frozen=True, slots=True)
class Arguments:
    """Behind the marker stands a JSON object of arguments."""


@dataclass(frozen=True, slots=True)
class NamedObject:
    """Behind the marker stands a JSON object with name and arguments; `strict`: nothing else may be in it."""

    strict: bool = False


@dataclass(frozen=True, slots=True)
class Parameters:
    """Behind the marker stand parameters in tags. `opens` has `{key}`, perhaps `{flag}` (true or string: the value is text)."""

    opens: str
    closes: tuple[str, ...]
    ends: tuple[str, ...]
    line: bool = False  # tags stand on lines of their own


@dataclass(frozen=True, slots=True)
class Loose:
    """Behind the marker stands an object with bare keys, its strings between `quote`s."""

    quote: str


@dataclass(frozen=True, slots=True)
class Nested:
    """Behind the marker stands a tree of tags, each behind `mark`: keys are tags, `item`s of lists too; `end` closes it."""

    mark: str
    end: str
    item: str


@dataclass(frozen=True, slots=True)
class Pythonic:
    """Behind the marker, which has the opening bracket, stand Python's keyword arguments up to the closing one."""


Body = Arguments | NamedObject | Parameters | Loose | Nested | Pythonic


@dataclass(frozen=True, slots=True)
class CallMark:
    """How a call begins: a pattern with `{name}` (perhaps `{id}`), and what follows it.

    `alone`: also outside a section; `start`: there only before any text; `known`: only if there is such a tool.
    """

    pattern: str
    body: Body
    alone: bool = True
    start: bool = False
    known: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """What stands around calls; an empty `close` means that it ends where no call follows."""

    open: str
    close: str = ""


@dataclass(frozen=True, slots=True)
class Writing:
    """How a call is written canonically: `opens`, then calls with `between`, then `closes`.

    `begin` has {name}, {number} (of the call) and {id}; arguments are a JSON object, or where `parameter` is given its parts
    with {key}, {flag} and {type} around each value (strings bare, everything else JSON), or loose where `quote` is
    given, or a `tree` of tags.
    """

    begin: str
    end: str = ""
    opens: str = ""
    closes: str = ""
    between: str = ""
    parameter: tuple[str, str, str] | None = None  # before a value, behind it, between two
    quote: str = ""
    python: bool = False
    tree: str = ""  # what stands before each tag of a tree

    def call(self, name: str, arguments: Mapping[str, Any], number: int = 0, id: str = "call00000") -> str:
        """The text of one call (without what stands around all of them)."""
        begin = self.begin.replace("{number}", str(number)).replace("{id}", id).replace("{name}", name)
        return begin + self._arguments(arguments) + self.end

    def calls(self, calls: list[tuple[str, Mapping[str, Any]]]) -> str:
        """The text of several calls."""
        return self.opens + self.between.join(self.call(n, a, i) for i, (n, a) in enumerate(calls)) + self.closes

    def _arguments(self, arguments: Mapping[str, Any]) -> str:
        if self.quote:
            return self._loose(arguments)
        if self.python:
            return ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        if self.tree:
            return self._nested(arguments)
        if self.parameter is None:
            return json.dumps(arguments, ensure_ascii=False)
        before, behind, between = self.parameter
        parts = []
        for key, value in arguments.items():
            text = isinstance(value, str)
            shown = value if text else json.dumps(value, ensure_ascii=False)
            kind = "string" if text else "json"
            before_this = before.replace("{flag}", str(text).lower()).replace("{type}", kind).replace("{key}", key)
            parts.append(before_this + shown + behind)
        return between.join(parts)

    def _nested(self, value: Any) -> str:
        if isinstance(value, (Mapping, list)):
            pairs = value.items() if isinstance(value, Mapping) else [("item", v) for v in value]
            return "".join(f"{self.tree}<{k}>{self._nested(v)}{self.tree}</{k}>" for k, v in pairs)
        return value if isinstance(value, str) else json.dumps(value)

    def _loose(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, Mapping):
            return "{" + ",".join(f"{k}:{self._loose(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(self._loose, value)) + "]"
        return json.dumps(value)


@dataclass(frozen=True, slots=True)
class Format:
    """One chat format.

    `marks`: reasoning and content; `sections` and `calls`: tool calls; `drops`: what may stand behind a call or between two;
    `fill`: characters that may as well; `keeps`: control tokens that must come as text for all this to be seen;
    `header`: the marker from which on the end of a prompt belongs to the answer; `ids`: how the model wants ids of calls;
    `thinks`: the marker with which a prompt may have opened reasoning.
    """

    name: str
    writing: Writing = field(kw_only=True)
    marks: tuple[Mark, ...] = ()
    sections: tuple[Section, ...] = ()
    calls: tuple[CallMark, ...] = ()
    drops: tuple[str, ...] = ()
    fill: str = ""
    keeps: tuple[str, ...] = ()
    header: str = ""
    ids: Literal["call", "nine"] = "call"
    thinks: tuple[str, ...] = ()
