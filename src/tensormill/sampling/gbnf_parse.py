"""Reads GBNF, the grammar notation of llama.cpp: text → a tree a rule. Refusals name line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tensormill.errors import RequestError

T = TypeVar("T")
Ranges = tuple[tuple[int, int], ...]
LAST = 0x10FFFF
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SPACE = re.compile(r"(?:[ \t]|#[^\n]*)*")
_LINES = re.compile(r"(?:\s|#[^\n]*)*")
_REPEAT = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_TOKEN = re.compile(r"<\[(\d+)\]>")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_HEX = {"x": 2, "u": 4, "U": 8}
_MOST = 2000


@dataclass(slots=True)
class Node:
    """`kind`: text, chars, token (its id as text), rule (its name), sequence, choice, or repeat (`most` −1: any number)."""

    kind: str
    text: str = ""
    parts: list[Node] = field(default_factory=list)
    least: int = 1
    most: int = 1
    ranges: Ranges = ()  # of chars: first and last of each, rising and apart

    def all(self) -> list[Node]:
        """The node and all inside it."""
        return [self, *(inner for part in self.parts for inner in part.all())]


def parse(text: str) -> dict[str, Node]:
    """Rules by name; there is a `root`, and every name that is used."""
    return _Parser(text).rules()


class _Parser:
    """Recursive descent; `_at` is where it stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._deep = 0
        self._uses: list[tuple[str, int]] = []

    def rules(self) -> dict[str, Node]:
        """All rules by name, each name known."""
        found: dict[str, Node] = {}
        self._skip(_LINES)
        while self._at < len(self._text):
            start, name = self._at, self._name()
            self._skip(_SPACE)
            if not self._taken("::="):
                raise self._error("expected '::=' behind the name of a rule")
            if name in found:
                raise self._error(f"there is a rule {name!r} already", start)
            found[name] = self._choice(nested=False)
            self._skip(_LINES)
        for name, at in self._uses:
            if name not in found:
                raise self._error(f"there is no rule {name!r}", at)
        if "root" not in found:
            raise self._error("there is no rule 'root'", len(self._text))
        return found

    def _error(self, message: str, at: int | None = None) -> RequestError:
        at = self._at if at is None else at
        line, column = self._text.count("\n", 0, at) + 1, at - (self._text.rfind("\n", 0, at) + 1) + 1
        return RequestError(f"GBNF grammar, line {line}, column {column}: {message}")

    def _skip(self, what: re.Pattern[str]) -> None:
        match = what.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _taken(self, word: str) -> bool:
        fits = self._text.startswith(word, self._at)
        self._at += len(word) if fits else 0
        return fits

    def _name(self) -> str:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._error("expected the name of a rule")
        self._at = match.end()
        return match.group()

    def _choice(self, *, nested: bool) -> Node:
        self._deep += 1
        if self._deep > 200:
            raise self._error("groups are nested too deeply")
        parts = [self._sequence(nested)]
        while self._at < len(self._text) and self._taken("|"):
            parts.append(self._sequence(nested))
        self._deep -= 1
        return parts[0] if len(parts) == 1 else Node("choice", parts=parts)

    def _sequence(self, nested: bool) -> Node:
        parts: list[Node] = []
        self._skip(_LINES)  # a line may end behind ::=, | and (
        while True:
            before = self._at
            self._skip(_LINES if nested else _SPACE)
            if not nested and self._continued():
                self._skip(_LINES)
            if self._at >= len(self._text) or self._text[self._at] in "|)\n\r":
                break
            if not nested and self._begins_rule() and "\n" in self._text[before : self._at]:
                self._at = before
                break
            parts.append(self._repeated(self._item()))
        return parts[0] if len(parts) == 1 else Node("sequence", parts=parts)

    def _continued(self) -> bool:
        """Whether the next line goes on with an alternative."""
        match = _LINES.match(self._text, self._at)
        return match is not None and self._text.startswith("|", match.end())

    def _begins_rule(self) -> bool:
        return re.compile(r"[A-Za-z_][A-Za-z0-9_-]*[ \t]*::=").match(self._text, self._at) is not None

    def _item(self) -> Node:
        start, char = self._at, self._text[self._at]
        if char == '"':
            return self._literal()
        if char == "[":
            return self._class()
        if char == ".":
            self._at += 1
            return Node("chars", ranges=((0, LAST),))
        if char == "(":
            self._at += 1
            inner = self._choice(nested=True)
            self._skip(_LINES)
            if not self._taken(")"):
                raise self._error("expected ')'")
            return inner
        if char == "<":
            match = _TOKEN.match(self._text, self._at)
            if match is None:
                raise self._error("of tokens only <[number]> can be used")
            self._at = match.end()
            return Node("token", match.group(1))
        if _NAME.match(self._text, self._at) is None:
            raise self._error(f"{char!r} has no meaning here")
        name = self._name()
        self._uses.append((name, start))
        return Node("rule", name)

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        return Node("text", "".join(self._characters('"', start, lambda char, _: char)))

    def _class(self) -> Node:
        start = self._at
        self._at += 1
        inverted = self._taken("^")
        ranges = self._characters("]", start, self._range)
        if not ranges and not inverted:
            raise self._error("an empty class of characters matches nothing", start)
        return Node("chars", ranges=_inverted(ranges) if inverted else _apart(ranges))

    def _range(self, low: str, start: int) -> tuple[int, int]:
        if not self._text.startswith("-", self._at) or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return ord(low), ord(low)
        self._at += 1
        high = self._character()
        if high < low:
            raise self._error(f"the range {low!r}-{high!r} is empty", start)
        return ord(low), ord(high)

    def _characters(self, close: str, start: int, made: Callable[[str, int], T]) -> list[T]:
        parts: list[T] = []
        while not self._taken(close):
            if self._at >= len(self._text) or self._text[self._at] in "\r\n":
                raise self._error(f"this has no closing {close!r}", start)
            at = self._at
            parts.append(made(self._character(), at))
        return parts

    def _character(self) -> str:
        char = self._text[self._at]
        self._at += 1
        if char != "\\":
            return char
        kind = self._text[self._at : self._at + 1]
        if kind in _HEX:
            digits = self._text[self._at + 1 : self._at + 1 + _HEX[kind]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX[kind]}}}", digits) or int(digits, 16) > 0x10FFFF:
                raise self._error(f"expected {_HEX[kind]} hexadecimal digits of a character behind \\{kind}")
            self._at += 1 + len(digits)
            return chr(int(digits, 16))
        if kind not in _ESCAPES and kind not in tuple('"\\[]-^/'):
            raise self._error(f"there is no escape \\{kind}", self._at - 1)
        self._at += 1
        return _ESCAPES.get(kind, kind)

    def _repeated(self, item: Node) -> Node:
        while True:
            self._skip(_SPACE)
            sign = self._text[self._at : self._at + 1]
            if sign == "{":
                item = self._counted(item)
            elif sign and sign in "*+?":
                self._at += 1
                least, most = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[sign]
                item = Node("repeat", parts=[item], least=least, most=most)
            else:
                return item

    def _counted(self, item: Node) -> Node:
        match = _REPEAT.match(self._text, self._at)
        if match is None or not (match[1] or match[2]):
            raise self._error("expected a number of repetitions, {m}, {m,} or {m,n}")
        least = int(match[1] or 0)
        most = least if not match[2] else int(match[3]) if match[3] else -1
        if max(least, most) > _MOST or 0 <= most < least:
            raise self._error(f"repetitions must rise and be at most {_MOST}")
        self._at = match.end()
        return Node("repeat", parts=[item], least=least, most=most)


def _apart(ranges: list[tuple[int, int]]) -> Ranges:
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], high)
        else:
            out.append((low, high))
    return tuple(out)


def _inverted(ranges: list[tuple[int, int]]) -> Ranges:
    out, at = [], 0
    for low, high in _apart(ranges):
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    return tuple(out if at > LAST else [*out, (at, LAST)])
