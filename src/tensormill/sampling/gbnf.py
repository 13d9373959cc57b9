"""GBNF, the grammar notation of llama.cpp → Lark as llguidance reads it. What cannot be converted is refused with its position.

A grammar without recursion becomes one regular expression. With recursion, rules and texts that a lexer of longest matches
cuts as the grammar would become lexemes (gbnf_lexemes.py), which makes masks a hundred times faster; all else is matched
character by character, so that nothing that the grammar means is lost.
"""

from __future__ import annotations

import json

from tensormill.sampling.gbnf_lexemes import Lexemes, reaches
from tensormill.sampling.gbnf_parse import Node, parse


def to_lark(text: str) -> str:
    """The Lark grammar whose `start` is the `root` of a GBNF grammar. Raises RequestError with line and column."""
    rules = parse(text)
    ids = {name: str(i) for i, name in enumerate(rules)}
    with_tokens = {name for name, node in rules.items() if any(n.kind == "token" for n in node.all())}
    ruled = {name for name in rules if reaches(rules, name, {name}) or name in with_tokens}
    ruled |= {name for name in rules if reaches(rules, name, ruled)}
    lexemes = Lexemes(rules, ruled) if "root" in ruled else None
    if lexemes:
        ruled = lexemes.ruled
    write = _Writer(ids, lexemes)
    start = f"r_{ids['root']}" if "root" in ruled else f"T_{ids['root']}"
    lines = [f"start: {start}"]
    lines += [f"r_{ids[name]}: {write(rules[name], True)}" for name in rules if name in ruled]
    regular = [name for name in rules if name not in ruled or (lexemes and name in lexemes.both)]
    lines += [f"T_{ids[name]}: {write(rules[name], False)}" for name in regular]
    return "\n".join(lines) + "\n"


class _Writer:
    """Nodes as Lark: of a rule, or of a terminal."""

    def __init__(self, ids: dict[str, str], lexemes: Lexemes | None) -> None:
        self._ids = ids
        self._lexemes = lexemes

    def __call__(self, node: Node, ruled: bool) -> str:
        return str(getattr(self, "_" + node.kind)(node, ruled))

    def _text(self, node: Node, ruled: bool) -> str:
        apart = ruled and node.text and self._lexemes is not None and node.text not in self._lexemes.texts
        return " ".join(json.dumps(c, ensure_ascii=False) for c in (node.text if apart else [node.text]))

    def _chars(self, node: Node, ruled: bool) -> str:
        inside = "".join(_shown(low) if low == high else f"{_shown(low)}-{_shown(high)}" for low, high in node.ranges)
        return f"/[{inside}]/" if inside else r"/[^\x{0}-\x{10ffff}]/"

    def _token(self, node: Node, ruled: bool) -> str:
        return f"<[{node.text}]>"

    def _rule(self, node: Node, ruled: bool) -> str:
        as_rule = ruled and self._lexemes is not None and node.text in self._lexemes.ruled
        return f"{'r' if as_rule else 'T'}_{self._ids[node.text]}"

    def _choice(self, node: Node, ruled: bool) -> str:
        return "(" + " | ".join(self(p, ruled) for p in node.parts) + ")"

    def _sequence(self, node: Node, ruled: bool) -> str:
        return "(" + " ".join(self(p, ruled) for p in node.parts) + ")" if node.parts else '""'

    def _repeat(self, node: Node, ruled: bool) -> str:
        signs = {(0, -1): "*", (1, -1): "+", (0, 1): "?"}
        bounds = f"{{{node.least},{node.most if node.most >= 0 else ''}}}"
        return f"({self(node.parts[0], ruled)})" + signs.get((node.least, node.most), bounds)


def _shown(code: int) -> str:
    char = chr(code)
    return char if char.isalnum() and char.isascii() else f"\\x{{{code:x}}}"
