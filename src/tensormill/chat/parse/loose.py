"""Readers of arguments that are not JSON: objects with bare keys, Python's keyword arguments, trees of tags."""

from __future__ import annotations

import json
from typing import Any

from tensormill.chat.parse.bodies import Body
from tensormill.chat.parse.scanner import Scanner, literal
from tensormill.chat.parse.typed import Tools, as_json, from_python


class LooseBody(Body):
    """An object with bare keys and strings between markers: `{city:<|"|>Paris<|"|>,days:3}`."""

    def __init__(self, name: str | None, id: str | None, quote: str) -> None:
        super().__init__(name, id)
        self._quote = quote
        self._scanner = Scanner()
        self._quoted = False
        self._bare = ""

    def feed(self, text: str) -> int:
        """Read to the end of the object."""
        at = 0
        while at < len(text) and not self.done and not self.broken:
            if text.startswith(self._quote, at):
                self._quoted = not self._quoted
                self._scan('"')
                at += len(self._quote)
            elif self._quote.startswith(text[at:]):
                break
            else:
                self._character(text[at])
                at += not self.broken
        return at

    def _character(self, c: str) -> None:
        self.begun = True
        if self._quoted:
            self._scan("\\" + c if c in '"\\' else c)
        elif c in "{}[],:":
            self._end_bare(key=c == ":")
            self._scan(c)
        elif self._bare or not c.isspace():
            self._bare += c
            self.broken = len(self._bare) > 400

    def _end_bare(self, *, key: bool) -> None:
        word, self._bare = self._bare.strip(), ""
        if word:
            self._scan((None if key else literal(word)) or json.dumps(word, ensure_ascii=False))

    def _scan(self, text: str) -> None:
        scanner = self._scanner
        for c in text:
            if scanner.state == "value" and not scanner.depth and c != "{":
                self.broken = True
                return
            self._out.append(scanner.push(c))
            if scanner.again:
                self._out.append(scanner.push(c))
        self.done, self.broken = scanner.state == "done", scanner.state == "broken"


_OPEN, _CLOSE = "([{", ")]}"


class PythonicBody(Body):
    """Python's keyword arguments up to the closing bracket: `city='Paris', days=3)`; each is written as it completes."""

    def __init__(self, name: str | None, id: str | None) -> None:
        super().__init__(name, id)
        self._text = ""  # of the argument that is being read
        self._quote = ""
        self._escaped = False
        self._depth = 0
        self._keys: set[str] = set()

    def feed(self, text: str) -> int:
        """Read to the closing bracket."""
        self.begun = True
        for i, c in enumerate(text):
            self._character(c)
            if self.done or self.broken:
                return i if self.broken else i + 1
        return len(text)

    def _character(self, c: str) -> None:
        if self._quote:
            if self._escaped or c == "\\":
                self._escaped = not self._escaped
            elif c == self._quote:
                self._quote = ""
        elif c in "'\"":
            self._quote = c
        elif c in _OPEN:
            self._depth += 1
        elif self._depth and c in _CLOSE:
            self._depth -= 1
        elif not self._depth and c in ",)":
            self._end_argument(last=c == ")")
            return
        self._text += c

    def _end_argument(self, *, last: bool) -> None:
        key, _, value = self._text.partition("=")
        key, self._text = key.strip(), ""
        written = from_python(value)
        if key and (written is None or not key.isidentifier() or key in self._keys):
            self.broken = True
        elif key:
            self._out.append(f"{', ' if self._keys else '{'}{json.dumps(key)}: {written}")
            self._keys.add(key)
        elif not last or self._keys:
            self.broken = not last
        if last and not self.broken:
            self._out.append("}" if self._keys else "{}")
            self.done = True


class NestedBody(Body):
    """A tree of tags, each behind a mark: `<city>…</city><tags><item>…</item></tags>`; written key by key."""

    def __init__(self, name: str | None, id: str | None, tools: Tools, mark: str, end: str, item: str) -> None:
        super().__init__(name, id)
        self._tools = tools
        self._mark, self._end, self._item = mark, end, item
        self._path: list[tuple[str, Any, list[tuple[str, str]]]] = []  # open tags: name, schema, finished children
        self._keys: set[str] = set()

    def feed(self, text: str) -> int:
        """Read whole tags, with the text before them."""
        used = 0
        while not self.done and not self.broken:
            at = text.find(self._mark, used)
            close = text.find(">", at + len(self._mark)) if at >= 0 else -1
            if close < 0:
                break
            tag = text[at + len(self._mark) : close + 1]
            self._tag(tag, text[used:at])
            used = used if self.broken else close + 1
        return used

    def _tag(self, tag: str, before: str) -> None:
        name = tag[1:-1].removeprefix("/")
        if tag[0] != "<" or not name or (before.strip() and not tag.startswith("</")):
            self.broken = True
        elif not tag.startswith("</"):
            self.begun = True
            schema = self._path[-1][1] if self._path else None
            inner = self._inner(schema, name) if self._path else self._tools.schema(self.name or "", name)
            self._path.append((name, inner, []))
        elif self._path and self._path[-1][0] == name:
            self._close(*self._path.pop(), before)
        else:
            self.done = not self._path and name == self._end
            self.broken = not self.done
            self.begun = self.begun or self.done
            self._out.append("" if self.broken else "}" if self._keys else "{}")

    def _inner(self, schema: Any, name: str) -> Any:
        schema = schema if isinstance(schema, dict) else {}
        properties = schema.get("properties")
        return schema.get("items") if name == self._item else properties.get(name) if isinstance(properties, dict) else None

    def _close(self, name: str, schema: Any, children: list[tuple[str, str]], before: str) -> None:
        kind = schema.get("type") if isinstance(schema, dict) else None
        if not children and not before.strip() and kind in ("array", "object"):  # else nothing is an empty string
            value = "[]" if kind == "array" else "{}"
        elif not children:
            value = as_json(before, schema)
        elif kind != "object" and all(child == self._item for child, _ in children):
            value = f"[{', '.join(v for _, v in children)}]"
        else:
            value = "{" + ", ".join(f"{json.dumps(c, ensure_ascii=False)}: {v}" for c, v in dict(children).items()) + "}"
        if self._path:
            self._path[-1][2].append((name, value))
        else:
            self.broken = name in self._keys
            self._out.append(f"{', ' if self._keys else '{'}{json.dumps(name, ensure_ascii=False)}: {value}")
            self._keys.add(name)
