"""Readers of a call's arguments: a JSON object, a JSON object that names the tool too, parameters in tags (more: `loose.py`).

Each reads from the front of text that is still coming and writes JSON. It is fed until it is done or broken.
"""

from __future__ import annotations

import json

from tensormill.chat.parse.pattern import Found, Patterns
from tensormill.chat.parse.scanner import Scanner
from tensormill.chat.parse.typed import Tools, as_json


class Body:
    """What the machine sees of a reader. `name`: the tool's, once known; `begun`: its arguments have begun."""

    def __init__(self, name: str | None, id: str | None) -> None:
        self.name = name
        self.id = id
        self.begun = False
        self.done = False
        self.broken = False
        self._out: list[str] = []

    def feed(self, text: str) -> int:
        """Read on; how many characters are settled (the rest comes again, with more)."""
        raise NotImplementedError

    def take(self) -> str:
        """JSON written since the last call."""
        out = "".join(self._out)
        self._out.clear()
        return out


class ArgumentsBody(Body):
    """A JSON object of arguments."""

    def __init__(self, name: str | None, id: str | None) -> None:
        super().__init__(name, id)
        self._scanner = Scanner()

    def feed(self, text: str) -> int:
        """Read to the end of the object."""
        for i, c in enumerate(text):
            if not self.begun and not c.isspace():
                self.begun, self.broken = c == "{", c != "{"
                if self.broken:
                    return i
            self._push(c)
            if self.done or self.broken:
                return i if self.broken else i + 1
        return len(text)

    def _push(self, c: str) -> None:
        scanner = self._scanner
        if self.begun:
            self._out.append(scanner.push(c))
            if scanner.again:
                self._out.append(scanner.push(c))
        self.done, self.broken = scanner.state == "done", scanner.state == "broken"


_NAMES = ("name", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters")
_IDS = ("id", "tool_call_id", "call_id")


class ObjectBody(Body):
    """`{"name": …, "arguments": {…}}`, its keys in any order. `strict`: no other keys (an answer may be JSON as well)."""

    def __init__(self, strict: bool) -> None:
        super().__init__(None, None)
        self._strict = strict
        self._scanner = Scanner()
        self._part = ""  # the key whose value is being read
        self._value: list[str] = []
        self._arguments = ""  # "": none yet; stream: being written; text: to be decoded; whole: written

    def feed(self, text: str) -> int:
        """Read to the end of the object."""
        for i, c in enumerate(text):
            self._push(c)
            while self._scanner.again and not self.broken:
                self._push(c)
            if self.broken:
                return i
            if self.done:
                self._finish()
                return i + 1
        return len(text)

    def _push(self, c: str) -> None:
        scanner = self._scanner
        before, state = scanner.depth, scanner.state
        out = scanner.push(c)
        self.broken = self.broken or scanner.state == "broken" or (before == 0 and scanner.depth == 0 and not c.isspace())
        self.done = scanner.state == "done"
        if before == 1 and state == "value" and not c.isspace():
            self._begin_value(c)
        if self._part:
            self._add(out)
            if scanner.depth == 1 and scanner.state == "next":
                self._end_value()

    def _begin_value(self, c: str) -> None:
        self._part = _decoded(f'"{self._scanner.key}"') or "?"
        if self._part in _ARGUMENTS:
            self.broken = self.broken or bool(self._arguments)
            self._arguments = "stream" if c == "{" else "text"
            self.begun = self.begun or c == "{"
        elif self._strict and self._part not in (*_NAMES, *_IDS, "type"):
            self.broken = True

    def _add(self, out: str) -> None:
        if self._part in _ARGUMENTS and self._arguments == "stream":
            self._out.append(out)
        else:
            self._value.append(out)

    def _end_value(self) -> None:
        value, self._value = "".join(self._value), []
        part, self._part = self._part, ""
        if part in _NAMES:
            name = _decoded(value)
            self.name = self.name or name
            self.broken = self.broken or not name
        elif part in _IDS:
            self.id = _decoded(value)
        elif part in _ARGUMENTS and self._arguments == "text":
            self._write_text(value)

    def _write_text(self, value: str) -> None:
        """Arguments as JSON text inside a string (or null)."""
        inner = "{}" if value == "null" else _decoded(value)
        reader = ArgumentsBody(None, None)
        settled = reader.feed(inner or "")
        if inner is None or not reader.done or inner[settled:].strip():
            self.broken = True
            return
        self._out.append(reader.take())
        self._arguments, self.begun = "whole", True

    def _finish(self) -> None:
        if self.name is None or (self._strict and not self._arguments):
            self.broken, self.done = True, False
        elif not self._arguments:
            self.begun = True
            self._out.append("{}")


def _decoded(text: str) -> str | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


class ParametersBody(Body):
    """Parameters in tags, typed by the tool's schema, written as each completes.

    A value may hold anything: its closing tag counts only where another parameter or the end of the call follows it.
    """

    def __init__(
        self, name: str | None, id: str | None, tools: Tools, around: Patterns[str], closes: Patterns[str], line: bool
    ) -> None:
        super().__init__(name, id)
        self._tools = tools
        self._around = around  # "open" of a parameter, "end" of the call
        self._closes = closes
        self._line = line  # a line break belongs to each tag
        self._key: str | None = None
        self._flag: str | None = None
        self._seen = 0  # where the search for the closing tag goes on
        self._keys: set[str] = set()

    def feed(self, text: str) -> int:
        """Read whole parameters."""
        used = 0
        while not self.done and not self.broken:
            settled = self._value(text[used:]) if self._key is not None else self._tag(text[used:])
            if not settled:
                break
            used += settled
        return used

    def _tag(self, text: str) -> int:
        found = self._around.search(text, final=False, here=True)
        if not isinstance(found, Found):
            self.broken = found is None and bool(text)
            return 0
        self.begun = True
        if self._around.means(found) == "end":
            self._out.append("}" if self._keys else "{}")
            self.done = True
        else:
            self._key, self._flag = found.fields["key"].strip(), found.fields.get("flag")
            self.broken = self._key in self._keys
        return found.end

    def _value(self, text: str) -> int:
        while True:
            close = self._closes.search(text, final=False, start=self._seen)
            if not isinstance(close, Found):
                self._seen = len(text) if close is None else close
                return 0
            found = self._around.search(text[close.end :], final=False, here=True)
            if found is not None or close.end == len(text):
                break
            self._seen = close.start + 1
        if not isinstance(found, Found):
            return 0
        self._write(text[: close.start])
        return close.end

    def _write(self, value: str) -> None:
        assert self._key is not None
        if self._line:
            value = value.removeprefix("\n").removesuffix("\n")
        schema = self._tools.schema(self.name or "", self._key)
        if self._flag is not None:
            schema = {"type": "string"} if self._flag in ("true", "string") else schema
        self._out.append(f"{', ' if self._keys else '{'}{json.dumps(self._key, ensure_ascii=False)}: {as_json(value, schema)}")
        self._keys.add(self._key)
        self._key, self._flag, self._seen = None, None, 0
