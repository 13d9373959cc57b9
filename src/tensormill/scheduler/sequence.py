"""What the scheduler knows of a request: its tokens, how far they are computed, whose it is. No tensor, no text."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensormill.cache import Holding, Keep


@dataclass(eq=False, slots=True)
class Sequence:
    """One sequence of tokens, prompt and answer; `past` of them are in the caches (none while it waits)."""

    id: str
    tokens: list[int]
    prompt: int  # how many of the tokens were given
    key: str = ""  # whose it is: queues are fair between keys
    salt: str = ""  # with whom it may share pages
    priority: int = 0  # higher goes first
    arrived: int = 0
    past: int = 0
    base: int = 0  # up to where its recurrent states are folded (OPS §2.4)
    drafts: list[int] = field(default_factory=list)  # guesses for the tokens after the last
    borders: set[int] = field(default_factory=set)  # tokens that others may share: at the page before, states are worth keeping
    holding: Holding | None = None
    preempted: int = 0  # how often it lost its pages
    reused: int = 0  # prompt tokens that were not computed, at its first start

    @property
    def todo(self) -> int:
        """Certain tokens that are not in the caches yet."""
        return len(self.tokens) - self.past

    @property
    def decoding(self) -> bool:
        """Whether only its newest token is left to compute."""
        return self.holding is not None and self.todo == 1 and len(self.tokens) > self.prompt


@dataclass(frozen=True, slots=True)
class Work:
    """A sequence's part of a step: tokens from `past` on, the first `sure` of them certain, the others drafts.

    `wants`: logits follow every token from the last certain one on. `snapshot`: why the slot is worth keeping after this step.
    """

    sequence: Sequence
    past: int
    tokens: list[int]
    sure: int
    wants: bool
    snapshot: Keep = ""
