"""The part of Go's text/template that prompts of /api/generate are written in: fields, if, else, and, or, not, eq, ne.

Loops, variables and functions beyond these are refused by name. The model's own template is Jinja and not handled here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tensormill.server.problem import Problem

_ACTION = re.compile(r"\{\{(-(?=\s))?\s*(/\*.*?\*/|.*?)\s*((?<=\s)-)?\}\}", re.S)
_WORD = re.compile(r'\s*(\(|\)|"(?:[^"\\]|\\.)*"|`[^`]*`|[^\s()"`]+)')
_CALLS: dict[str, Callable[..., str]] = {
    "and": lambda *v: next((x for x in v[:-1] if not x), v[-1]),
    "or": lambda *v: next((x for x in v[:-1] if x), v[-1]),
    "not": lambda v: "" if v else "true",
    "eq": lambda a, *b: "true" if a in b else "",
    "ne": lambda a, b: "true" if a != b else "",
}
_LEAST = {"and": 1, "or": 1, "not": 1, "eq": 2, "ne": 2}
_MOST = {"not": 1, "ne": 2}
_DEPTH = 50


@dataclass
class _If:
    """One level of if … end: whether its text shows now, and whether a branch of it has shown."""

    shows: bool
    done: bool
    last: bool = False  # else was seen


def rendered(template: str, values: Mapping[str, str]) -> str:
    """The prompt, up to where the response goes; Problem for what is not understood."""
    out: list[str] = []
    levels: list[_If] = []
    for text, action in _pieces(template):
        shows = all(level.shows for level in levels)
        if shows:
            out.append(text)
        if action == ".Response" and shows:
            break
        if action is not None:
            made = _act(action, levels, values, shows)
            out.append(made if shows else "")
    else:
        if levels:
            raise _bad("an if without an end")
    return "".join(out)


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """Text and the action behind it (None for a comment, and at the end), white space trimmed where `{{-` and `-}}` say so."""
    at, trim = 0, False
    for found in _ACTION.finditer(template):
        text = template[at : found.start()]
        text = text.lstrip() if trim else text
        yield text.rstrip() if found[1] else text, None if found[2].startswith("/*") else found[2]
        at, trim = found.end(), bool(found[3])
    rest = template[at:]
    if "{{" in rest:
        raise _bad("an action that does not end")
    yield rest.lstrip() if trim else rest, None


def _act(action: str, levels: list[_If], values: Mapping[str, str], shows: bool) -> str:
    word, _, rest = action.partition(" ")
    if word == "if":
        if len(levels) == _DEPTH:
            raise _bad("ifs nested too deep")
        true = bool(_value(rest, values))
        levels.append(_If(true, true))
    elif word == "else":
        _else(rest.strip(), levels, values)
    elif word == "end":
        if not levels:
            raise _bad("an end without an if")
        levels.pop()
    else:
        return _value(action, values)
    return ""


def _else(rest: str, levels: list[_If], values: Mapping[str, str]) -> None:
    if not levels or levels[-1].last:
        raise _bad("an else without an if")
    level = levels[-1]
    if rest and not rest.startswith("if "):
        raise _bad(f"else {rest}")
    true = bool(_value(rest[3:], values)) if rest else True
    level.shows = true and not level.done
    level.done, level.last = level.done or true, not rest


def _value(text: str, values: Mapping[str, str]) -> str:
    words = _WORD.findall(text)
    made = _call(words, values, 0)
    if words or _WORD.sub("", text).strip():
        raise _bad(text)
    return made


def _call(words: list[str], values: Mapping[str, str], depth: int) -> str:
    """Take a function with its arguments, or one value, from the front of the words."""
    if words and words[0] in _CALLS:
        name = words.pop(0)
        arguments = []
        while words and words[0] != ")":
            arguments.append(_operand(words, values, depth))
        if not _LEAST[name] <= len(arguments) <= _MOST.get(name, len(arguments)):
            raise _bad(f"{name} with {len(arguments)} arguments")
        return _CALLS[name](*arguments)
    return _operand(words, values, depth)


def _operand(words: list[str], values: Mapping[str, str], depth: int) -> str:
    if not words or depth == _DEPTH:
        raise _bad("an empty action")
    word = words.pop(0)
    if word == "(":
        made = _call(words, values, depth + 1)
        if not words or words.pop(0) != ")":
            raise _bad("a bracket that does not close")
        return made
    if word[0] == "`":
        return word[1:-1]
    if word[0] == '"':
        return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), word[1:-1])
    name = word.removeprefix("$")
    if name.startswith(".") and name[1:] in (*values, "Response", "Suffix"):
        return values.get(name[1:], "")
    raise _bad(word)


def _bad(what: str) -> Problem:
    return Problem(
        f"template: {what} is not understood here; there are .System, .Prompt, .Response, if, else, and, or, not, eq, ne",
        param="template",
    )
