"""GBNF, the grammar notation of llama.cpp → Lark as llguidance reads it. What cannot be converted is refused with its position.

A grammar without recursion becomes one regular expression, which is fast. With recursion it is matched character by character:
slower by an order of magnitude, but exact, where a lexer of longest matches would take letters from what follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tensormill.errors import RequestError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SPACE = re.compile(r"(?:[ \t]|#[^\n]*)*")
_LINES = re.compile(r"(?:\s|#[^\n]*)*")
_REPEAT = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_TOKEN = re.compile(r"<\[(\d+)\]>")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_HEX = {"x": 2, "u": 4, "U": 8}
_MOST = 2000


@dataclass
class _Node:
    """`kind`: text, chars (a regex class), token, rule, sequence, choice, or repeat (`most` −1: any number)."""

    kind: str
    text: str = ""
    parts: list[_Node] = field(default_factory=list)
    least: int = 1
    most: int = 1


def to_lark(text: str) -> str:
    """The Lark grammar whose `start` is the `root` of a GBNF grammar. Raises RequestError with line and column."""
    rules = _Parser(text).rules()
    ruled = any(n.kind == "token" for node in rules.values() for n in _all(node)) or any(_reaches(rules, n, n) for n in rules)
    ids = {name: f"{'r' if ruled else 'T'}_{i}" for i, name in enumerate(rules)}
    write = _Writer(ids, ruled)
    lines = [f"start: {ids['root']}", *(f"{ids[name]}: {write(node)}" for name, node in rules.items())]
    return "\n".join(lines) + "\n"


def _all(node: _Node) -> list[_Node]:
    return [node, *(inner for part in node.parts for inner in _all(part))]


def _reaches(rules: dict[str, _Node], start: str, goal: str) -> bool:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for node in _all(rules[ahead.pop()]):
            if node.kind == "rule":
                if node.text == goal:
                    return True
                if node.text not in seen:
                    seen.add(node.text)
                    ahead.append(node.text)
    return False


class _Writer:
    """Nodes as Lark: rules of single characters, or terminals."""

    def __init__(self, ids: dict[str, str], ruled: bool) -> None:
        self._ids = ids
        self._ruled = ruled

    def __call__(self, node: _Node) -> str:
        return str(getattr(self, "_" + node.kind)(node))

    def _text(self, node: _Node) -> str:
        letters = node.text if self._ruled and node.text else [node.text]
        return " ".join(json.dumps(c, ensure_ascii=False) for c in letters)

    def _chars(self, node: _Node) -> str:
        return node.text

    def _token(self, node: _Node) -> str:
        return f"<[{node.text}]>"

    def _rule(self, node: _Node) -> str:
        return self._ids[node.text]

    def _choice(self, node: _Node) -> str:
        return "(" + " | ".join(map(self, node.parts)) + ")"

    def _sequence(self, node: _Node) -> str:
        return "(" + " ".join(map(self, node.parts)) + ")" if node.parts else '""'

    def _repeat(self, node: _Node) -> str:
        signs = {(0, -1): "*", (1, -1): "+", (0, 1): "?"}
        bounds = f"{{{node.least},{node.most if node.most >= 0 else ''}}}"
        return f"({self(node.parts[0])})" + signs.get((node.least, node.most), bounds)


class _Parser:
    """Recursive descent; `_at` is where it stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._deep = 0
        self._uses: list[tuple[str, int]] = []

    def rules(self) -> dict[str, _Node]:
        """All rules by name, each name known."""
        found: dict[str, _Node] = {}
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

    def _choice(self, *, nested: bool) -> _Node:
        self._deep += 1
        if self._deep > 200:
            raise self._error("groups are nested too deeply")
        parts = [self._sequence(nested)]
        while self._at < len(self._text) and self._taken("|"):
            parts.append(self._sequence(nested))
        self._deep -= 1
        return parts[0] if len(parts) == 1 else _Node("choice", parts=parts)

    def _sequence(self, nested: bool) -> _Node:
        parts: list[_Node] = []
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
        return parts[0] if len(parts) == 1 else _Node("sequence", parts=parts)

    def _continued(self) -> bool:
        """Whether the next line goes on with an alternative."""
        match = _LINES.match(self._text, self._at)
        return match is not None and self._text.startswith("|", match.end())

    def _begins_rule(self) -> bool:
        return re.compile(r"[A-Za-z_][A-Za-z0-9_-]*[ \t]*::=").match(self._text, self._at) is not None

    def _item(self) -> _Node:
        start, char = self._at, self._text[self._at]
        if char == '"':
            return self._literal()
        if char == "[":
            return self._class()
        if char == ".":
            self._at += 1
            return _Node("chars", r"/(?s:.)/")
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
            return _Node("token", match.group(1))
        if _NAME.match(self._text, self._at) is None:
            raise self._error(f"{char!r} has no meaning here")
        name = self._name()
        self._uses.append((name, start))
        return _Node("rule", name)

    def _literal(self) -> _Node:
        start = self._at
        self._at += 1
        return _Node("text", "".join(self._characters('"', start, lambda char, _: char)))

    def _class(self) -> _Node:
        start = self._at
        self._at += 1
        inverted = self._taken("^")
        parts = self._characters("]", start, self._range)
        if not parts and not inverted:
            raise self._error("an empty class of characters matches nothing", start)
        return _Node("chars", f"/[{'^' if inverted else ''}{''.join(parts)}]/" if parts else r"/(?s:.)/")

    def _range(self, low: str, start: int) -> str:
        if not self._text.startswith("-", self._at) or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return _in_class(low)
        self._at += 1
        high = self._character()
        if high < low:
            raise self._error(f"the range {low!r}-{high!r} is empty", start)
        return f"{_in_class(low)}-{_in_class(high)}"

    def _characters(self, close: str, start: int, made: Callable[[str, int], str]) -> list[str]:
        parts: list[str] = []
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

    def _repeated(self, item: _Node) -> _Node:
        while True:
            self._skip(_SPACE)
            sign = self._text[self._at : self._at + 1]
            if sign == "{":
                item = self._counted(item)
            elif sign and sign in "*+?":
                self._at += 1
                least, most = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[sign]
                item = _Node("repeat", parts=[item], least=least, most=most)
            else:
                return item

    def _counted(self, item: _Node) -> _Node:
        match = _REPEAT.match(self._text, self._at)
        if match is None or not (match[1] or match[2]):
            raise self._error("expected a number of repetitions, {m}, {m,} or {m,n}")
        least = int(match[1] or 0)
        most = least if not match[2] else int(match[3]) if match[3] else -1
        if max(least, most) > _MOST or 0 <= most < least:
            raise self._error(f"repetitions must rise and be at most {_MOST}")
        self._at = match.end()
        return _Node("repeat", parts=[item], least=least, most=most)


def _in_class(char: str) -> str:
    return char if char.isalnum() and char.isascii() else f"\\x{{{ord(char):x}}}"
