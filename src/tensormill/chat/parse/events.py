"""What a parsed answer is made of: events as they stream, and `gather`, which joins them into one message.

Nothing here knows a format. A call that broke after it had begun ends with `broken`; its raw text follows as content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A bit of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """A bit of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The model calls a tool; `index` counts the calls of this answer from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """A bit of a call's arguments; joined they are one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The call is complete; or `broken`: its arguments are not whole, and its raw text follows as content."""

    index: int
    broken: bool = False


Event = Reasoning | Content | ToolCallStart | ToolCallArguments | ToolCallEnd


@dataclass(slots=True)
class Call:
    """A whole tool call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """A whole answer: broken calls are not among its calls, their text is in its content."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)


def gather(events: Iterable[Event]) -> Answer:
    """Join events into one message."""
    answer, calls = Answer(), dict[int, Call]()
    for event in events:
        match event:
            case Reasoning(text):
                answer.reasoning += text
            case Content(text):
                answer.content += text
            case ToolCallStart(index, id, name):
                calls[index] = Call(id, name)
            case ToolCallArguments(index, text):
                calls[index].arguments += text
            case ToolCallEnd(index, broken):
                if not broken:
                    answer.calls.append(calls[index])
    return answer


def merged(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbours of one kind joined: what does not depend on how the text was split."""
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        match last, event:
            case (Content(a), Content(b)):
                out[-1] = Content(a + b)
            case (Reasoning(a), Reasoning(b)):
                out[-1] = Reasoning(a + b)
            case (ToolCallArguments(i, a), ToolCallArguments(j, b)) if i == j:
                out[-1] = ToolCallArguments(i, a + b)
            case _:
                out.append(event)
    return out
