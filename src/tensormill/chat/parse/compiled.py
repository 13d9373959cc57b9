"""A format made ready for the machine: its patterns compiled, by where they count; made once a format."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from tensormill.chat.parse.bodies import ArgumentsBody, Body, ObjectBody, ParametersBody
from tensormill.chat.parse.formats import (
    Arguments,
    CallMark,
    Channel,
    Format,
    Loose,
    Mark,
    NamedObject,
    Nested,
    Parameters,
    Pythonic,
    Section,
)
from tensormill.chat.parse.loose import LooseBody, NestedBody, PythonicBody
from tensormill.chat.parse.pattern import Patterns
from tensormill.chat.parse.typed import Tools

Meaning = Mark | Section | CallMark | Literal["close", "drop"]
_CHANNELS: tuple[Channel, ...] = ("content", "reasoning")


class Compiled:
    """`text`: what counts in a channel, while nothing was shown (True) and later; `calls`: what counts in a section."""

    def __init__(self, form: Format, tools: bool, raw: bool) -> None:
        marks = [] if raw and not form.header else list(form.marks)
        sections = form.sections if tools else ()
        calls = form.calls if tools else ()
        self.text: dict[tuple[Channel, bool], Patterns[Meaning]] = {}
        for channel in _CHANNELS:
            for fresh in (True, False):
                entries: list[tuple[str, Meaning]] = [
                    (c.pattern, c) for c in calls if c.alone and (not c.start or (fresh and channel == "content"))
                ]
                entries += [(s.open, s) for s in sections]
                entries += [(m.pattern, m) for m in marks if m.within in (None, channel) and (fresh or not m.start)]
                self.text[channel, fresh] = Patterns(entries)
        self.calls = {section: self._between(form, section) for section in (None, *sections)}
        self._around: dict[Parameters, Patterns[str]] = {}
        self._closes: dict[Parameters, Patterns[str]] = {}
        for body in {c.body for c in calls}:
            if isinstance(body, Parameters):
                self._around[body] = Patterns([(body.opens, "open"), *((end, "end") for end in body.ends)])
                self._closes[body] = Patterns([(close, "close") for close in body.closes])

    @staticmethod
    def _between(form: Format, section: Section | None) -> Patterns[Meaning]:
        entries: list[tuple[str, Meaning]] = [(c.pattern, c) for c in form.calls if section or c.alone]
        if section and section.close:
            entries.append((section.close, "close"))
        elif not section:
            entries += [(s.close, "drop") for s in form.sections if s.close]
        return Patterns([*entries, *((drop, "drop") for drop in form.drops)])

    def body(self, mark: CallMark, name: str | None, id: str | None, tools: Tools) -> Body:
        """A reader for what follows a call's marker."""
        match mark.body:
            case Arguments():
                return ArgumentsBody(name, id)
            case NamedObject(strict):
                return ObjectBody(strict)
            case Loose(quote):
                return LooseBody(name, id, quote)
            case Pythonic():
                return PythonicBody(name, id)
            case Nested(tag_mark, end, item):
                return NestedBody(name, id, tools, tag_mark, end, item)
            case Parameters() as spec:
                return ParametersBody(name, id, tools, self._around[spec], self._closes[spec], spec.line)


@lru_cache(maxsize=64)
def compiled(form: Format, tools: bool, raw: bool) -> Compiled:
    """The format ready for use; `tools`: calls are looked for; `raw`: reasoning is not."""
    return Compiled(form, tools, raw)
