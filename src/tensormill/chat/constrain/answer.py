"""`constrain`: what a request wants of an answer → a grammar for a chat format, or none if everything is fine.

Reasoning runs free and comes first. Behind it stand content, free or of the wanted form, or calls; which of them depends on
`tool_choice`. Where calls are possible but not required, text is free until the marker that announces one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tensormill.chat.constrain.calls import Tool, tool, write_calls
from tensormill.chat.constrain.frames import Frame, frame
from tensormill.chat.constrain.rules import TEXT, Rules
from tensormill.chat.parse import Format, Writing
from tensormill.errors import RequestError
from tensormill.tokenizer import Tokenizer

_WHITE = r"/[ \n]{0,3}/"
_FIRST_TAG = re.compile(r"<[^<>{}]*>")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks of its answer. `choice`: auto, none, required, or `named` with the tool's `name`.

    `response`: kind and text of the grammar that content must match (a json_schema has its schema as text). `reasoning`:
    whether the answer may begin with it; where the prompt has opened it, it comes in any case.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    choice: str = "auto"
    name: str = ""
    parallel: bool = True
    response: tuple[str, str] | None = None
    reasoning: bool = True


def constrain(form: Format, tokenizer: Tokenizer, wanted: Wanted, continues: str = "") -> tuple[str, str] | None:
    """Kind and text of the grammar, None if anything goes; `continues` is the end of the prompt.

    RequestError for what no grammar can give; what schemas cannot be honoured shows when the grammar is compiled.
    """
    tools = _chosen(wanted)
    if not tools and wanted.response is None:
        return None
    return _Answer(form, tokenizer, wanted, tools, continues).grammar()


def _chosen(wanted: Wanted) -> list[Tool]:
    """The tools that may be called."""
    if wanted.choice not in ("auto", "none", "required", "named"):
        raise RequestError(f"tool_choice must be auto, none, required or a tool's name, not {wanted.choice!r}")
    tools = [] if wanted.choice == "none" else [tool(t) for t in wanted.tools]
    if wanted.choice == "required" and not tools:
        raise RequestError("tool_choice is 'required', but there are no tools")
    if wanted.choice == "named":
        tools = [t for t in tools if t.name == wanted.name][:1]
        if not tools:
            raise RequestError(f"tool_choice names {wanted.name!r}, but there is no such tool")
    return tools


class _Answer:
    """One grammar in the making."""

    def __init__(self, form: Format, tokenizer: Tokenizer, wanted: Wanted, tools: list[Tool], continues: str) -> None:
        self._wanted, self._tools, self._continues = wanted, tools, continues.rstrip()
        self._thinks = form.thinks
        self._frame = self._fitting(frame(form))
        self._writing, self._trigger = _joined(form, self._frame)
        self._marker = form.writing.opens + form.writing.begin
        self._rules = Rules(tokenizer, {*form.keeps, *_tags(form, self._frame)})
        self._unannounced = not self._trigger and not self._frame.content[0]  # calls begin like any JSON
        self._forced = wanted.choice in ("required", "named")

    def _fitting(self, whole: Frame) -> Frame:
        """Behind a prompt that does not stop inside a message's header, all is content."""
        if whole.inner and not self._continues.endswith(whole.inner) and not self._opened():
            return Frame()
        return whole if self._wanted.reasoning or self._opened() else replace(whole, reasoning=None)

    def _opened(self) -> bool:
        """Whether the prompt ends inside reasoning."""
        return any(self._continues.endswith(t) for t in self._thinks)

    def grammar(self) -> tuple[str, str]:
        """Kind and text."""
        rules, reasoning, response = self._rules, self._frame.reasoning, self._wanted.response
        opened = reasoning is not None and self._opened()
        if response is not None and not self._tools and self._frame == Frame():
            return response
        starts = []
        if reasoning is not None:
            begin = "" if opened else rules.literal(reasoning[0])
            behind = self._body("behind", self._plain_text(behind=True), white=True)
            starts.append(f"{begin} {rules.until('thought', reasoning[1], self._thought())} {behind}")
        if not opened:
            starts.append(self._body("fresh", self._plain_text(), white=False))
        rules.rule("start", " | ".join(starts))
        return "composed", rules.text()

    def _plain_text(self, *, behind: bool = False) -> str:
        """Text that does not begin as reasoning does (unless it is behind it), nor as a call that no marker announces."""
        unlike = []
        reasoning = self._frame.reasoning
        if reasoning is not None and not behind and not self._rules.is_control(reasoning[0]):
            unlike.append(re.escape(reasoning[0].strip()))
        if self._tools and (self._unannounced or any(tool.strict for tool in self._tools)):
            unlike.append(r"(```(json)?\s*)?\{\s*\x22name\x22")  # where it is read as a call, but its schema does not hold
        return TEXT + "".join(rf" & ~/\s*{start}(?s:.)*/" for start in unlike)

    def _thought(self) -> str:
        """Reasoning: any text in which no call begins, since one would be read as such there too, whatever it calls."""
        tag = _FIRST_TAG.match(self._marker)
        begin = tag.group() if tag else self._marker.split("{")[0].split("\n")[0]
        if not self._tools or not begin.strip() or self._rules.is_control(begin):
            return TEXT
        return rf"{TEXT} & ~/(?s:.*){re.escape(begin)}(?s:.*)/"

    def _body(self, name: str, free: str, *, white: bool) -> str:
        """The rule for content or calls."""
        rules, (begin, end) = self._rules, self._frame.content
        space = f"{_WHITE} " if white else ""
        ways = []
        response, direct = self._wanted.response, self._forced or self._wanted.response is not None
        if response is not None and not self._forced:
            if self._tools and self._unannounced and response[0].startswith("json_"):
                return rules.rule(name, space + self._either(response))
            part = rules.part("response", kind=response[0], text=response[1])
            ways.append(f"{space}{rules.literal(begin)} {part} {rules.literal(end)}")
        elif not self._forced:
            text = rules.until(f"{name}_text", end, free) if end else rules.rule(f"{name.upper()}_TEXT", free)
            ways.append(f"{rules.literal(begin)} {text}" if begin else text)
        if self._tools:
            mixed = self._trigger and not begin and not direct
            announced = rules.until(f"{name}_head", self._trigger, free) if mixed else space + rules.literal(self._trigger)
            ways.append(f"{announced} {self._calls()}")
        return rules.rule(name, " | ".join(ways))

    def _either(self, response: tuple[str, str]) -> str:
        """Content of a JSON form, or a call, where both begin with the same brace: one schema for the two, one call at most."""
        content = json.loads(response[1]) if response[0] == "json_schema" else {"type": "object"}
        schemas: dict[str, Any] = {"content": content}
        for number, one in enumerate(self._tools):
            # the whole is strict, so that one which is not stays out of it
            schemas[f"parameters-{number}"] = one.schema if one.strict else {"type": "object"}
        named = {k: {**v, "$id": f"urn:{k}"} if isinstance(v, dict) else v for k, v in schemas.items()}
        calls = [
            {
                "type": "object",
                "properties": {"name": {"const": one.name}, "parameters": {"$ref": f"urn:parameters-{number}"}},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
            for number, one in enumerate(self._tools)
        ]
        whole = {"anyOf": [{"$ref": "urn:content"}, *calls], "$defs": named}
        return self._rules.part("either", schema=whole, strict=True, title="json_schema, or a call of a tool")

    def _calls(self) -> str:
        """The rule for all calls, behind the trigger."""
        rules, writing = self._rules, self._writing
        if rules.has("calls"):
            return "calls"
        repeated = writing.between if writing.opens else writing.between + self._trigger
        several = self._wanted.parallel and self._wanted.choice != "named" and bool(repeated or writing.opens)
        opens = writing.opens.removeprefix(self._trigger)
        if not writing.opens:
            writing = replace(writing, begin=writing.begin.removeprefix(self._trigger))
        return rules.rule("calls", write_calls(rules, writing, self._tools, opens, repeated if several else None))


def _joined(form: Format, whole: Frame) -> tuple[Writing, str]:
    """How calls are written with what the frame puts in front, and the text that announces them (empty: nothing does)."""
    writing = form.writing
    if whole.calls:
        begin, end = whole.calls + writing.opens + writing.begin, writing.end + writing.closes
        return replace(writing, begin=begin, end=end, opens="", closes="", between=""), ""
    if whole.content[0]:
        return writing, ""
    text = writing.opens + writing.begin
    trigger = next((k for k in form.keeps if text.startswith(k)), "")
    tag = _FIRST_TAG.match(text)
    return writing, trigger or (tag.group() if tag else "")


def _tags(form: Format, whole: Frame) -> list[str]:
    """What may be a control token in the texts that are written."""
    writing = form.writing
    texts = [*(whole.reasoning or ()), *whole.content, whole.calls, writing.opens, writing.begin, writing.end, writing.closes]
    return re.findall(r"<[^<>{}]*>|\[/?[A-Z_]+\]", " ".join(texts))
