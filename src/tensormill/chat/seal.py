"""Keeps what people wrote from becoming control tokens: only the template's own text may.

`<|im_end|>` in a message would end it, were it read as the token of that name. So such texts are broken before the template
runs, by a sign that occurs nowhere else and that trimming, changing case, JSON and joining let pass; the tokenizer cuts the
control tokens out of what was rendered and then takes the signs away. Where no content holds such a text nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensormill.errors import TemplateError

_SIGNS = range(0xA000, 0xA48D)  # syllables of Yi: printable letters without case, which no operation on text touches
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_INSIDE = re.compile(r"\W.*\W", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A text whose `sign`s (if there are any) stand where no control token may be found."""

    text: str
    sign: str = ""

    @property
    def plain(self) -> str:
        """The text without signs."""
        return self.text.replace(self.sign, "") if self.sign else self.text


class Seal:
    """Breaks the texts of some control tokens; `own` are those that an assistant's turn may hold, to mark its reasoning."""

    def __init__(self, controls: Iterable[str], own: Iterable[str] = ()) -> None:
        self._controls = frozenset(t.lower() for t in controls if t.strip())
        self._own = frozenset(t.lower() for t in own)

    @cached_property
    def _others(self) -> Seal:
        return Seal(self._controls - self._own)

    @cached_property
    def _cores(self) -> dict[str, list[str]]:
        """What is looked for, by its first three characters: all but the brackets, which a template may put around a name."""
        found: dict[str, list[str]] = {}
        for text in self._controls:
            core = text[1:-1] if _INSIDE.fullmatch(text[1:-1]) else text
            found.setdefault(core[:3], []).append(core)
        return found

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(text[:n] for text in self._controls for n in range(1, len(text)))

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._controls), default=0)

    def through(self, write: Callable[[Any], str], values: Any, source: str = "") -> Sealed:
        """What `write`, a template of that `source`, makes of values of JSON: no control token will be found in theirs."""
        sign = self._sign(values, source)
        if not sign:
            return Sealed(write(values))
        text = write(self._broken_in(values, sign))
        return Sealed(text.replace(_escape(sign), sign), sign)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(re.sub(r"^\W+|\W+$", "", text) for text in self._controls) - {*_ROLES}

    def _sign(self, values: Any, source: str) -> str:
        """A sign that occurs nowhere; "" if nothing must be broken."""
        texts = list(_strings(values))
        if not (any(map(self._breaks, texts)) or any(role.lower() in self._names for role in _roles(values))):
            return ""
        whole = "\0".join([*texts, source]).lower()
        for code in _SIGNS:
            if chr(code) not in whole and _escape(chr(code)) not in whole:
                return chr(code)
        raise TemplateError("the messages hold every syllable of Yi together with names of control tokens")

    def _broken_in(self, value: Any, sign: str) -> Any:
        if isinstance(value, str):
            return self._broken(value, sign)
        if isinstance(value, list):
            return [self._broken_in(inner, sign) for inner in value]
        if not isinstance(value, dict):
            return value
        seal = self._others if self._own and value.get("role") == "assistant" else self
        made = {seal._broken(key, sign): seal._broken_in(inner, sign) for key, inner in value.items()}
        role = value.get("role")
        if isinstance(role, str) and role.lower() in self._names:  # some templates put brackets around it
            made["role"] = role[:1] + sign + role[1:]
        return made

    def _broken(self, text: str, sign: str) -> str:
        for place in sorted(self._breaks(text), reverse=True):
            text = text[:place] + sign + text[place:]
        return text

    def _breaks(self, text: str) -> set[int]:
        """Where: behind the first character of each, and of a beginning at the end that what follows might complete."""
        lowered = text.lower()
        if len(lowered) != len(text):  # a few letters become two: compare those as they are
            lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
        places: set[int] = set()
        for start, cores in self._cores.items():
            if start in lowered:
                for core in cores:
                    places.update(m.start() + 1 for m in re.finditer(f"(?={re.escape(core)})", lowered))
        end = lowered.rstrip()
        for n in range(1, min(self._longest, len(end) + 1)):
            if end[-n:] in self._beginnings:
                places.add(len(end) - n + 1)
        return places


def _escape(sign: str) -> str:
    return f"\\u{ord(sign):04x}"


def _walk(value: Any) -> Iterator[Any]:
    """Every value inside a value of JSON, keys too."""
    stack = [value]
    while stack:
        value = stack.pop()
        yield value
        if isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list):
            stack += value


def _strings(value: Any) -> Iterator[str]:
    return (inner for inner in _walk(value) if isinstance(inner, str))


def _roles(value: Any) -> Iterator[str]:
    return (v["role"] for v in _walk(value) if isinstance(v, dict) and isinstance(v.get("role"), str))
