"""Outputs of one sequence → bits, through the parser of the model's chat format where the request is a chat."""

from __future__ import annotations

from tensormill.chat.parse import Content, Event, Format, OutputParser, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from tensormill.engine.messages import Output
from tensormill.server.request import Ask, Bit, Prompt

_FINISH = {"context": "length"}


class Reading:
    """Reads one sequence's answer."""

    def __init__(self, format: Format, ask: Ask, prompt: Prompt, choice: int) -> None:
        self._choice = choice
        self._first_only = not ask.parallel_tool_calls
        self._called = self._thinks = False
        self._parser: OutputParser | None = None
        if ask.messages is not None and ask.parse:
            tools = ask.tools if ask.tools and ask.tool_choice != "none" else []
            self._parser = OutputParser(format, tools, continues=prompt.text, seed=f"{ask.id}.{choice}")

    def bit(self, output: Output) -> Bit:
        """What an output means."""
        events = self._events(output)
        if self._first_only:
            events = [e for e in events if not _later(e)]
        self._called |= any(isinstance(e, ToolCallEnd) and not e.broken for e in events)
        self._thinks = _thinks(events, self._thinks)
        finish = output.finish and _FINISH.get(output.finish, output.finish)
        if finish == "stop" and self._called:
            finish = "tool_calls"
        matched = output.matched if isinstance(output.matched, str) else None
        thought = len(output.tokens) if self._thinks else 0
        return Bit(self._choice, events, output.text, output.tokens, output.chances, finish, matched, output.usage, thought)

    def _events(self, output: Output) -> list[Event]:
        if self._parser is None:
            return [Content(output.text)] if output.text else []
        events = self._parser.push(output.text)
        return events + self._parser.finish() if output.finish else events


def _thinks(events: list[Event], before: bool) -> bool:
    """Whether an output is reasoning; one that shows nothing is what the last was."""
    return isinstance(events[-1], Reasoning) if events else before


def _later(event: Event) -> bool:
    return isinstance(event, (ToolCallStart, ToolCallArguments, ToolCallEnd)) and event.index > 0
