"""What the server and the engine say to each other: typed messages, so that the engine may live in a process of its own.

Prompts travel as token ids; answers as text with their tokens. No JSON, no template and no API dialect passes this door.
"""

from __future__ import annotations

import msgspec

from tensormill.config import SamplingConfig


class Grammar(msgspec.Struct, frozen=True, tag=True):
    """What the answer must match: `kind` json_schema, json_object, regex, lark or gbnf."""

    kind: str
    text: str


class Thinking(msgspec.Struct, frozen=True, tag=True):
    """A bound on reasoning, which stands between the texts `begin` and `end`; `open`: the prompt ends inside it.

    After `budget` tokens of it come those of `close`; of `answer`, should it have begun once more.
    """

    budget: int
    begin: str
    end: str
    close: list[int]
    answer: list[int]
    open: bool = False


class Generate(msgspec.Struct, frozen=True, tag=True):
    """Answer a prompt. `key`: whose it is (fair queues); `salt`: with whom it may share cached prefixes."""

    id: str
    tokens: list[int]
    sampling: SamplingConfig = SamplingConfig()
    key: str = ""
    salt: str = ""
    priority: int = 0
    logprobs: int = -1  # alternatives to report for each token; −1: no log-probabilities
    grammar: Grammar | None = None
    shows: list[int] | None = None  # control tokens whose text is shown; None: all of them
    thinking: Thinking | None = None


class Embed(msgspec.Struct, frozen=True, tag=True):
    """What the model makes of a text: the hidden rows of its tokens pooled: `pooling` mean, last or cls (the first)."""

    id: str
    tokens: list[int]
    pooling: str = "mean"
    key: str = ""
    salt: str = ""


class Score(msgspec.Struct, frozen=True, tag=True):
    """How likely each token of a text is behind those before it; `top` alternatives a token."""

    id: str
    tokens: list[int]
    top: int = 0
    key: str = ""
    salt: str = ""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for this answer any more."""

    id: str


class Chance(msgspec.Struct, frozen=True):
    """A token's log-probability, and those of the likeliest alternatives."""

    token: int
    logprob: float
    top: list[tuple[int, float]] = []


class Usage(msgspec.Struct, frozen=True):
    """What a request cost: tokens, and seconds since it was submitted."""

    prompt: int
    cached: int
    output: int
    queued: float  # seconds until it was first scheduled
    first: float  # seconds until its first token
    total: float
    drafted: int = 0
    accepted: int = 0


class Output(msgspec.Struct, frozen=True, tag=True):
    """A bit of an answer; the last one has `finish` (stop, length, context, cancelled) and `usage`."""

    id: str
    text: str = ""
    tokens: list[int] = []
    chances: list[Chance] = []
    finish: str | None = None
    matched: str | int | None = None  # the stop string or end token that ended it
    usage: Usage | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A request could not be served: `kind` names the sort (request: the client's fault; engine: ours)."""

    id: str
    message: str
    kind: str = "request"


class Embedded(msgspec.Struct, frozen=True, tag=True):
    """The pooled hidden row [D], float32 little-endian bytes, not normalised."""

    id: str
    vector: bytes
    prompt: int


class Scored(msgspec.Struct, frozen=True, tag=True):
    """The chances of all tokens but the first."""

    id: str
    chances: list[Chance]


class Stats(msgspec.Struct, frozen=True, tag=True):
    """How an engine is; counters since it was loaded."""

    running: int
    waiting: int
    usage: float  # share of the pages that are in use or remembered
    held: int  # pages that requests hold now
    steps: int
    computed: int  # tokens
    preempted: int
    disk_bytes: int = 0  # of pages and states in files
    disk_failures: int = 0  # writes that failed


Request = Generate | Embed | Score | Cancel
Reply = Output | Embedded | Scored | Failed
