"""Markers as patterns, found in text that is still coming: a match, a place where one may be under way, or nothing.

A pattern is literal text in which a blank stands for any white space, or none, and braces for more: `{name}` a field (see
`FIELDS`), `{_}` some white space, `{?…}` an optional part, `{!abc}` one of these characters must follow and is left,
`{id=…}` a part that is kept under that name. It ends in literal text or `{!…}`, so that what matches never depends on
where the text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
SPACES = r"\s{0,64}"
FIELDS = {
    "_": r"\s{1,64}",
    "name": r"""[^\s<>"'{}\[\]()|,;=]{1,256}?""",
    "key": r'[^<>"\n]{1,256}?',
    "id": r"[^\s<>\[\]{}|]{1,128}?",
    "number": r"[0-9]{1,9}",
    "word": r"[^\s<>|={}\[\]]{1,64}?",
    "flag": r"[a-z]{1,12}",
}
_KEPT = ("name", "key", "id", "flag")  # fields that are handed over
_END = r"\Z"
_NEVER = "(?!)"


@dataclass(frozen=True, slots=True)
class _Node:
    kind: str  # literal (one character), space, field, optional, after, kept
    text: str = ""
    inner: tuple[_Node, ...] = ()


class Found(NamedTuple):
    """A pattern that matched, as entry `which`, at text[start:end]."""

    which: int
    start: int
    end: int
    fields: dict[str, str]


class Patterns(Generic[T]):
    """Patterns in order of preference, each with what it stands for."""

    def __init__(self, entries: Sequence[tuple[str, T]]) -> None:
        self.entries = tuple(entries)
        parsed = [_parse(pattern) for pattern, _ in entries]
        whole = [f"(?P<w{i}>{_whole(nodes, i)})" for i, nodes in enumerate(parsed)]
        begun = [f"(?P<b{i}>(?=.){_begun(nodes)})" for i, nodes in enumerate(parsed)]
        first = f"(?=[{''.join(sorted({_first(nodes) for nodes in parsed}))}])" if parsed else _NEVER
        both = "|".join(f"{w}|{b}" for w, b in zip(whole, begun, strict=True))
        self._streaming = re.compile(f"{first}(?:{both})", re.DOTALL)
        self._final = re.compile(f"{first}(?:{'|'.join(whole)})", re.DOTALL)

    def search(self, text: str, *, final: bool, here: bool = False, start: int = 0) -> Found | int | None:
        """The first match from `start` on; or the place from which on the text may become one (never if `final`); or None.

        `here`: only at `start`.
        """
        regex = self._final if final else self._streaming
        match = regex.match(text, start) if here else regex.search(text, start)
        if match is None or match.lastgroup is None:
            return None
        if match.lastgroup[0] == "b":
            return match.start()
        which = int(match.lastgroup[1:])
        prefix = f"f{which}_"
        fields = {k.removeprefix(prefix): v for k, v in match.groupdict().items() if k.startswith(prefix) and v is not None}
        return Found(which, match.start(), match.end(), fields)

    def means(self, found: Found) -> T:
        """What the pattern that matched stands for."""
        return self.entries[found.which][1]


def _parse(pattern: str) -> tuple[_Node, ...]:
    nodes, at = _parse_until(pattern, 0, "")
    assert at == len(pattern), f"unbalanced braces in {pattern!r}"
    return nodes


def _parse_until(pattern: str, at: int, closing: str) -> tuple[tuple[_Node, ...], int]:
    nodes: list[_Node] = []
    while at < len(pattern) and pattern[at] != closing:
        if pattern[at] == "{":
            node, at = _parse_braces(pattern, at)
            nodes.append(node)
        else:
            nodes.append(_Node("space") if pattern[at] == " " else _Node("literal", pattern[at]))
            at += 1
    return tuple(nodes), at


def _parse_braces(pattern: str, at: int) -> tuple[_Node, int]:
    if pattern.startswith("{?", at):
        inner, end = _parse_until(pattern, at + 2, "}")
        return _Node("optional", inner=inner), end + 1
    end = pattern.index("}", at)
    if pattern.startswith("{!", at):
        return _Node("after", pattern[at + 2 : end]), end + 1
    if "=" in pattern[at:end].split("{")[1]:
        name = pattern[at + 1 : pattern.index("=", at)]
        inner, end = _parse_until(pattern, at + len(name) + 2, "}")
        return _Node("kept", name, inner), end + 1
    return _Node("field", pattern[at + 1 : end]), end + 1


def _whole(nodes: tuple[_Node, ...], which: int = -1) -> str:
    """Regular expression of the whole pattern; as entry `which`, with fields in groups."""
    out = ""
    for node in nodes:
        match node.kind:
            case "literal":
                out += re.escape(node.text)
            case "space":
                out += SPACES
            case "field":
                out += _group(node.text, which) + FIELDS[node.text] + ")"
            case "kept":
                out += _group(node.text, which) + _whole(node.inner, which) + ")"
            case "after":
                out += f"(?=[{re.escape(node.text)}])"
            case _:
                out += f"(?:{_whole(node.inner, which)})?"
    return out


def _group(name: str, which: int) -> str:
    return f"(?P<f{which}_{name}>" if which >= 0 and name in _KEPT else "(?:"


def _begun(nodes: tuple[_Node, ...]) -> str:
    """Regular expression of every beginning of the pattern that reaches the end of the text."""
    out = _NEVER
    for node in reversed(nodes):
        match node.kind:
            case "literal" | "field":
                out = f"(?:{_END}|{_whole((node,))}{out})"
            case "space":
                out = f"{SPACES}(?:{_END}|{out})"
            case "after":
                out = _END
            case _:
                may = "?" if node.kind == "optional" else ""
                out = f"(?:{_begun(node.inner)}|(?:{_whole(node.inner)}){may}{out})"
    return out


def _first(nodes: tuple[_Node, ...]) -> str:
    """Characters that a pattern may begin with, as the inside of a character class."""
    node, rest = nodes[0], nodes[1:]
    match node.kind:
        case "literal" | "after":
            return re.escape(node.text)
        case "space":
            return r"\s" + _first(rest)
        case "optional":
            return _first(node.inner + rest) + _first(rest)
        case "kept":
            return _first(node.inner + rest)
        case _:
            return r"\S"
