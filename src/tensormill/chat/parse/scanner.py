"""Checks JSON character by character, and rewrites what models get wrong so that what comes out is valid JSON.

Mended: raw line breaks and other control characters in strings, escapes that JSON does not have, Python's True, False and
None. Everything else that is not JSON is broken.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_SPACE = " \t\r\n"
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_DEEPEST = 256


def literal(word: str) -> str | None:
    """A number or a word of JSON (or Python's), as JSON; None if it is neither."""
    return _WORDS.get(word) or (word if _NUMBER.fullmatch(word) else None)


class Scanner:
    """One JSON value. `push` each character; `again` asks for the same one once more (it ended a number or a word).

    `state`: value, key, colon, next, string, escape, hex, word, done or broken. `key` is the text of the key that was
    read last in the outermost object, as it stands in the JSON.
    """

    def __init__(self) -> None:
        self.state = "value"
        self.again = False
        self.key = ""
        self._open: list[str] = []  # containers around here
        self._word = ""
        self._in_key = False
        self._empty = False  # just behind the opening bracket
        self._handlers: dict[str, Callable[[str], str]] = {
            "value": self._value, "key": self._key, "colon": self._colon, "next": self._next, "string": self._string,
            "escape": self._escape, "hex": self._hex, "word": self._more, "done": self._broken, "broken": self._broken,
        }  # fmt: skip

    @property
    def depth(self) -> int:
        """Containers around the next character."""
        return len(self._open)

    def push(self, c: str) -> str:
        """Take a character; what it adds to the JSON written so far."""
        self.again = False
        inside = self._in_key
        out = self._handlers[self.state](c)
        if inside and self._in_key and len(self._open) == 1:
            self.key += out
        return out

    def _broken(self, c: str = "") -> str:
        self.state = "broken"
        return ""

    def _value(self, c: str) -> str:
        if c in _SPACE:
            return c
        empty, self._empty = self._empty, False
        if c in "{[":
            return self._enter(c, "key" if c == "{" else "value")
        if c == '"':
            self.state, self._in_key = "string", False
            return c
        if c == "]" and empty and self._open[-1] == "[":
            return self._leave(c)
        if c.isalnum() or c == "-":
            self.state, self._word = "word", c
            return ""
        return self._broken()

    def _enter(self, c: str, state: str) -> str:
        if self.depth == _DEEPEST:
            return self._broken()
        self._open.append(c)
        self.state, self._empty = state, True
        return c

    def _leave(self, c: str) -> str:
        self._open.pop()
        self._ended()
        return c

    def _ended(self) -> None:
        self.state = "next" if self._open else "done"

    def _key(self, c: str) -> str:
        if c in _SPACE:
            return c
        empty, self._empty = self._empty, False
        if c == '"':
            self.state, self._in_key = "string", True
            if self.depth == 1:
                self.key = ""
            return c
        return self._leave(c) if c == "}" and empty else self._broken()

    def _colon(self, c: str) -> str:
        if c == ":":
            self.state = "value"
        elif c not in _SPACE:
            return self._broken()
        return c

    def _next(self, c: str) -> str:
        if c in _SPACE:
            return c
        if c == ",":
            self.state = "key" if self._open[-1] == "{" else "value"
            return c
        return self._leave(c) if (self._open[-1], c) in (("{", "}"), ("[", "]")) else self._broken()

    def _string(self, c: str) -> str:
        if c == '"':
            if self._in_key:
                self.state, self._in_key = "colon", False
            else:
                self._ended()
            return c
        if c == "\\":
            self.state = "escape"
            return ""
        return c if c >= " " else _CONTROL.get(c, f"\\u{ord(c):04x}")

    def _escape(self, c: str) -> str:
        self.state = "string"
        if c == "u":
            self.state, self._word = "hex", ""
            return ""
        if c in '"\\/bfnrt':
            return "\\" + c
        return c if c == "'" else "\\\\" + (c if c >= " " else _CONTROL.get(c, f"\\u{ord(c):04x}"))

    def _hex(self, c: str) -> str:
        if c not in "0123456789abcdefABCDEF":
            return self._broken()
        self._word += c
        if len(self._word) < 4:
            return ""
        self.state = "string"
        return "\\u" + self._word

    def _more(self, c: str) -> str:
        if (c.isalnum() or c in "+-.") and len(self._word) < 400:
            self._word += c
            return ""
        word = literal(self._word)
        if word is None:
            return self._broken()
        self._ended()
        self.again = True
        return word
