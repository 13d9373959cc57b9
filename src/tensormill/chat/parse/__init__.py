"""Answer text → reasoning, content and tool calls, as it streams: one machine, a table row a format."""

from tensormill.chat.parse.events import (
    Answer,
    Call,
    Content,
    Event,
    Reasoning,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
    gather,
    merged,
)
from tensormill.chat.parse.formats import Format, Writing
from tensormill.chat.parse.machine import OutputParser, named
from tensormill.chat.parse.table import FORMATS, choose

__all__ = [
    "FORMATS", "Answer", "Call", "Content", "Event", "Format", "OutputParser", "Reasoning", "ToolCallArguments", "ToolCallEnd",
    "ToolCallStart", "Writing", "choose", "gather", "merged", "named",
]  # fmt: skip
