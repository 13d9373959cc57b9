"""A Lark grammar under construction, in which control tokens of the vocabulary stand for themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tensormill.tokenizer import Tokenizer
from tensormill.tokenizer.vocab import Kind

TEXT = "/(?s:.)*/"


class Rules:
    """Collects rules and the schemas that they name; `text` is the whole, a grammar of kind `composed`."""

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str]) -> None:
        found = {m: i for m in markers if (i := tokenizer.id_of(m)) is not None and tokenizer.kind(i) == Kind.CONTROL}
        self._controls = found
        self._ends = {m for m, i in found.items() if i in tokenizer.end_ids}
        names = sorted(map(re.escape, found), key=len, reverse=True)
        self._cut = re.compile("(" + "|".join(names) + ")" if names else "(?!)()")
        self._lines: list[str] = []
        self._parts: dict[str, Mapping[str, Any]] = {}

    def text(self) -> str:
        """The grammar, whose first rule must be `start`."""
        return json.dumps({"lark": "\n".join(self._lines) + "\n", "parts": self._parts}, ensure_ascii=False)

    def rule(self, name: str, body: str, *, lazy: bool = False) -> str:
        """Add a rule (or, where the name begins with a capital, a terminal); its name."""
        self._lines.append(f"{name}{'[lazy]' if lazy else ''}: {body}")
        return name

    def has(self, name: str) -> bool:
        """Whether there is such a rule."""
        return any(line.startswith((f"{name}:", f"{name}[")) for line in self._lines)

    def part(self, name: str, **part: Any) -> str:
        """Add a grammar of its own (kind and text, or schema, strict and title); how rules name it."""
        self._parts[name] = part
        return "@" + name

    def is_control(self, text: str) -> bool:
        """Whether a text begins with a control token."""
        return self._cut.match(text) is not None

    def literal(self, text: str) -> str:
        """An expression for a text; a token that ends answers is left out at its end, where any other of them will do."""
        pieces = [piece for piece in self._cut.split(text) if piece]
        while pieces and pieces[-1] in self._ends:
            pieces.pop()
        written = [f"<[{self._controls[p]}]>" if p in self._controls else json.dumps(p, ensure_ascii=False) for p in pieces]
        return " ".join(written) or '""'

    def until(self, name: str, marker: str, free: str = TEXT) -> str:
        """An expression for any text up to a marker, and the marker; adds a rule."""
        first = self._cut.split(marker)[0]
        rest = marker[len(first) :]
        if not first:  # a control token, which no text can hold
            return f"{self.rule(name.upper(), free)} {self.literal(marker)}"
        head = self.rule(name, f"({free}) {json.dumps(first, ensure_ascii=False)}", lazy=True)
        return f"{head} {self.literal(rest)}" if rest else head
