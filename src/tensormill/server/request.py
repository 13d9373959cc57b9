"""The one internal request and answer. Each API dialect is a pair of translations: its JSON → `Ask`, `Bit`s → its JSON.

Nothing here knows a dialect, and nothing here is sent to an engine: `answering.py` makes the engine's messages of it.
Messages and tools are plain values in the shape that chat templates are written for (roles, content as text or parts,
tool_calls with function.name and function.arguments, tool results with tool_call_id).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensormill.chat.parse import Event
from tensormill.config import SamplingConfig
from tensormill.engine.messages import Chance, Grammar, Thinking, Usage
from tensormill.observe.traces import Trace

Values = dict[str, Any]
EFFORTS = {"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.95}  # share of an answer that reasoning may take


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: `key` names whose turn it is (fair queues), `salt` with whom cached prefixes are shared."""

    key: str = ""
    salt: str = ""


@dataclass(slots=True)
class Ask:
    """A prompt to be answered, from whatever dialect: `messages` (with tools) for a chat, else `prompt`."""

    model: str = ""
    caller: Caller = field(default_factory=Caller)
    id: str = ""  # of the request, for logs; engine requests are named after it

    messages: list[Values] | None = None
    tools: list[Values] | None = None  # {"type": "function", "function": {name, description, parameters, strict}}
    tool_choice: str = "auto"  # auto, none, required, or the name of the tool to call as "=name"
    parallel_tool_calls: bool = True
    continue_final: bool = False  # the last message is the assistant's, and is to be continued
    thinking: bool | None = None  # None: as the template does without being told
    thinking_budget: int | None = None  # tokens of reasoning; 0: none at all
    template_values: Values = field(default_factory=dict)  # variables for the template

    prompt: str | list[int] | None = None  # raw: no template
    write: Callable[[Values], str] | None = None  # the request's own template, which makes the prompt of `parts`
    parts: Values = field(default_factory=dict)
    before: list[int] = field(default_factory=list)  # ids in front of the prompt: an earlier exchange, as it was
    suffix: str | None = None  # fill in the middle, between prompt and this
    add_special: bool = True
    parse_special: bool = True  # control tokens in a raw prompt are meant

    sampling: dict[str, Any] = field(default_factory=dict)  # fields of SamplingConfig that the request states
    grammar: Grammar | None = None
    n: int = 1
    best_of: int = 0  # choose the n likeliest of so many; 0: n
    logprobs: int = -1  # alternatives a token; −1: none
    echo: bool = False
    parse: bool = True  # find reasoning and tool calls in a chat's answer
    show_special: bool = False  # control tokens that mean nothing to the parser are shown as text
    priority: int = 0
    timeout: float | None = None  # seconds
    keep: float | None = None  # seconds that the model then stays loaded when idle; None: as long as there is room
    arrived: float = field(default_factory=time.monotonic)
    trace: Trace = field(default_factory=Trace)

    @property
    def many(self) -> int:
        """Sequences that are computed."""
        return max(self.n, self.best_of)


@dataclass(frozen=True, slots=True)
class Bit:
    """What came of choice `choice`: parsed events, raw text and tokens, and at its end `finish`.

    `finish`: stop, length or tool_calls; `matched` is the stop string, or None.
    """

    choice: int
    events: list[Event]
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    chances: list[Chance] = field(default_factory=list)
    finish: str | None = None
    matched: str | None = None
    usage: Usage | None = None
    thought: int = 0  # tokens of reasoning among them


@dataclass(slots=True)
class Prompt:
    """A request made ready: ids, the sampling it ends up with, and the end of the rendered text (parsing needs it).

    `shows`: the control tokens that the answer shows as text, for the parser to see; None: all of them.
    """

    tokens: list[int]
    sampling: SamplingConfig
    text: str = ""
    grammar: Grammar | None = None
    shows: list[int] | None = None
    thinking: Thinking | None = None
    scores: list[Chance] = field(default_factory=list)  # of the prompt's own tokens but the first, for `echo` with logprobs


@dataclass(slots=True)
class Choice:
    """A whole answer."""

    index: int
    events: list[Event] = field(default_factory=list)
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    chances: list[Chance] = field(default_factory=list)
    finish: str = "stop"
    matched: str | None = None
    usage: Usage | None = None
    thought: int = 0

    def add(self, bit: Bit) -> None:
        """Take a bit in."""
        self.events += bit.events
        self.text += bit.text
        self.tokens += bit.tokens
        self.chances += bit.chances
        self.thought += bit.thought
        if bit.finish:
            self.finish, self.matched, self.usage = bit.finish, bit.matched, bit.usage


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request cost, over all its choices: tokens, how many of the prompt's were cached, and milliseconds."""

    prompt: int
    cached: int
    output: int
    reasoning: int
    queued_ms: float
    prompt_ms: float
    output_ms: float
    drafted: int = 0
    accepted: int = 0


def spent(by_choice: Mapping[int, Usage], many: int = 1, reasoning: int = 0) -> Spent:
    """Add up the choices of a request, `many` a prompt: a prompt counts once; times are those of the slowest."""
    if not by_choice:
        return Spent(0, 0, 0, reasoning, 0.0, 0.0, 0.0)
    prompts: dict[int, list[Usage]] = {}
    for choice, usage in by_choice.items():
        prompts.setdefault(choice // many, []).append(usage)
    usages = list(by_choice.values())
    first, last = min(u.first for u in usages), max(u.total for u in usages)
    queued = min(u.queued for u in usages)
    return Spent(
        prompt=sum(us[0].prompt for us in prompts.values()),
        cached=sum(min(u.cached for u in us) for us in prompts.values()),
        output=sum(u.output for u in usages),
        reasoning=reasoning,
        queued_ms=queued * 1000,
        prompt_ms=max(first - queued, 0) * 1000,
        output_ms=max(last - first, 0) * 1000,
        drafted=sum(u.drafted for u in usages),
        accepted=sum(u.accepted for u in usages),
    )
