"""`OutputParser`: the text of an answer, as it comes, into reasoning, content and tool calls.

One machine for all formats: it shows text until a marker of its format is complete, reads what the marker announces, and
holds back only what may still become a marker. What turns out not to be what it began as is shown as it stands.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tensormill.chat.parse.bodies import Body
from tensormill.chat.parse.compiled import Compiled, Meaning, compiled
from tensormill.chat.parse.events import Content, Event, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart, merged
from tensormill.chat.parse.formats import CallMark, Channel, Format, Mark, Section
from tensormill.chat.parse.pattern import Found
from tensormill.chat.parse.table import FORMATS
from tensormill.chat.parse.typed import Tools
from tensormill.errors import TemplateError

_SPACE = " \t\r\n"
_RESCANNED = 512  # a broken call of at most so many characters is searched for markers again
_NINE = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class OutputParser:
    """Parses one answer; `push` its text as it comes, then `finish`.

    `tools`: the request's (they type XML-style parameters); None: unknown, calls are parsed all the same; empty: there are
    none, so calls are text. `reasoning`: auto, open (the prompt has opened it), raw (its tags are shown as text; not for
    formats of whole messages, which have none). `continues`: the rendered prompt, or its end, which the answer continues.
    `seed` makes the ids of calls reproducible. Raises TemplateError for an unknown format.
    """

    def __init__(
        self,
        format: Format | str,
        tools: Sequence[Mapping[str, Any]] | None = None,
        reasoning: Literal["auto", "open", "raw"] = "auto",
        continues: str = "",
        *,
        seed: str | None = None,
    ) -> None:
        self.format = form = named(format) if isinstance(format, str) else format
        self._tools = Tools(tools)
        self._seed = secrets.token_hex(8) if seed is None else seed
        self._compiled: Compiled = compiled(form, bool(self._tools), reasoning == "raw")
        self._events: list[Event] = []
        self._text = ""  # not settled yet
        self._ghost = 0  # characters in front of it that are the prompt's
        self._channel: Channel = "content"
        self._fresh = True  # nothing but white space was shown since the channel was entered
        self._skip = False  # white space behind a marker belongs to the marker
        self._section: Section | None = None
        self._in_calls = False  # in a section, or behind a call
        self._had = False  # a call was complete there
        self._body: Body | None = None
        self._mark: CallMark | None = None
        self._raw = ""  # text since the marker that may turn out broken
        self._head = 0  # how much of it is the marker
        self._started = False
        self._count = 0
        self._begin(reasoning, continues)

    def push(self, text: str) -> list[Event]:
        """Take a bit of the answer; what is certain now."""
        self._text += text
        return self._run(final=False)

    def finish(self) -> list[Event]:
        """The answer is over; what was held back."""
        return self._run(final=True)

    def _begin(self, reasoning: str, continues: str) -> None:
        form, end = self.format, continues.rstrip()
        if reasoning == "open" or (reasoning == "auto" and any(end.endswith(t) for t in form.thinks)):
            self._channel, self._skip = "reasoning", True
        at = continues.rfind(form.header) if form.header else -1
        if at >= 0 and len(continues) - at <= _RESCANNED:  # the answer begins inside a message header
            self._text = continues[at:]
            self._ghost = len(self._text)
            self._run(final=False)

    def _run(self, *, final: bool) -> list[Event]:
        while self._body_step(final) if self._body else self._calls_step(final) if self._in_calls else self._text_step(final):
            pass
        events, self._events = merged(self._events), []
        return events

    def _eat(self, n: int) -> str:
        """Settle n characters; those of them that are the answer's."""
        text, self._text = self._text[:n], self._text[n:]
        ghost = min(self._ghost, n)
        self._ghost -= ghost
        return text[ghost:]

    def _show(self, text: str) -> None:
        if text:
            self._events.append(Content(text) if self._channel == "content" else Reasoning(text))
        if not text.isspace() and text:
            self._fresh = False

    def _text_step(self, final: bool) -> bool:
        """Show text up to the next marker; whether to go on."""
        if self._skip:
            self._eat(len(self._text) - len(self._text.lstrip(_SPACE)))
            self._skip = not self._text
        if not self._text:
            return False
        patterns = self._compiled.text[self._channel, self._fresh]
        found = patterns.search(self._text, final=final)
        at = found.start if isinstance(found, Found) else len(self._text) if found is None else found
        first = len(self._text) - len(self._text.lstrip(_SPACE))
        if self._fresh and first < at:  # text comes first: markers that only begin an answer are out
            self._show(self._eat(first + 1))
            return True
        self._show(self._eat(at))
        if not isinstance(found, Found):
            return False
        self._enter(patterns.means(found), found, self._eat(found.end - at))
        return True

    def _enter(self, meaning: Meaning, found: Found, marker: str) -> None:
        if isinstance(meaning, Mark):
            self._channel, self._skip, self._fresh = meaning.channel, True, True
            return
        self._in_calls, self._had, self._section = True, False, None
        self._raw, self._head = marker, len(marker)
        if isinstance(meaning, Section):
            self._section = meaning
        else:
            assert isinstance(meaning, CallMark)
            self._open(meaning, found)

    def _open(self, mark: CallMark, found: Found) -> None:
        self._mark, self._started = mark, False
        self._body = self._compiled.body(mark, found.fields.get("name"), found.fields.get("id"), self._tools)

    def _calls_step(self, final: bool) -> bool:
        """Between calls, or in a section before the first; whether to go on."""
        self._raw += self._eat(len(self._text) - len(self._text.lstrip(_SPACE)))
        if not self._text and not final:
            return False
        patterns = self._compiled.calls[self._section]
        found = patterns.search(self._text, final=final, here=True)
        if isinstance(found, int):
            return False
        if found is None:
            if self._text and self._text[0] in self.format.fill:
                self._raw += self._eat(1)
            else:
                self._leave()
            return True
        meaning = patterns.means(found)
        marker = self._eat(found.end)
        if isinstance(meaning, CallMark):
            if self._had:
                self._raw, self._head = "", len(marker)
            self._raw += marker
            self._open(meaning, found)
        else:
            self._raw += marker
            if meaning == "close":
                self._leave()
        return True

    def _leave(self) -> None:
        """Back to text; a section without a call was none."""
        if self._had:
            self._in_calls, self._raw, self._skip = False, "", True
        else:
            self._reject()

    def _body_step(self, final: bool) -> bool:
        """Read a call; whether to go on."""
        body, mark = self._body, self._mark
        assert body is not None and mark is not None
        self._raw += self._eat(body.feed(self._text))
        if body.name and body.begun and not self._started:  # also if it broke in the same piece: pieces must not matter
            if mark.known and not self._tools.knows(body.name):
                body.broken = True
            else:
                self._start(body.name, body.id)
        arguments = body.take() if self._started else ""
        if arguments:
            self._events.append(ToolCallArguments(self._count - 1, arguments))
        if body.broken or (final and not body.done):
            self._body = None
            self._reject()
            return True
        if body.done:
            self._events.append(ToolCallEnd(self._count - 1))
            self._body, self._had, self._raw = None, True, ""
        return body.done

    def _start(self, name: str, id: str | None) -> None:
        self._events.append(ToolCallStart(self._count, id or self._new_id(self._count), name))
        self._count, self._started = self._count + 1, True

    def _reject(self) -> None:
        """What began as calls is text: its marker is shown, the rest searched again unless it is long or known to clients."""
        raw, self._raw, self._in_calls = self._raw or self._eat(1), "", False
        shown = len(raw)
        if self._started:
            self._events.append(ToolCallEnd(self._count - 1, broken=True))
        elif shown <= _RESCANNED:
            shown = max(self._head, 1)
        self._started = False
        self._show(raw[:shown])
        self._text = raw[shown:] + self._text

    def _new_id(self, index: int) -> str:
        digest = hashlib.blake2b(f"{self._seed}:{index}".encode(), digest_size=12)
        if self.format.ids == "call":
            return f"call_{digest.hexdigest()}"
        number = int.from_bytes(digest.digest(), "little")
        return "".join(_NINE[number // 62**i % 62] for i in range(9))


def named(name: str) -> Format:
    """The format of that name; TemplateError lists those there are."""
    if name not in FORMATS:
        raise TemplateError(f"there is no chat format {name!r}; choose one of: {', '.join(FORMATS)}")
    return FORMATS[name]
