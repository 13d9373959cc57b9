"""How much one rendering may do: steps, characters, seconds, depth.

A thread cannot be stopped from outside, so every guarded operation asks here *before* it works. What the operations
cost is in `costs.py`, where they are intercepted in `sandbox.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from jinja2.utils import Namespace

from tensormill.errors import TemplateError


@dataclass(frozen=True)
class Limits:
    """What a template may use; the first two grow with the messages it is given."""

    source: int = 262_144
    """Characters of the template itself."""
    steps: int = 1_000_000
    """Loop turns, calls, and elements touched; 200 more for each value in the messages."""
    text: int = 16_000_000
    """Characters made by all operations together; 32 more for each character in the messages."""
    seconds: float = 5.0
    """Wall-clock time of one rendering."""
    depth: int = 50
    """Macros, recursive loops and blocks inside each other."""


class Exhausted(TemplateError):
    """A template asked for more than its limits."""


class Budget:
    """What is left of the limits in one rendering."""

    def __init__(self, limits: Limits, nodes: int = 0, characters: int = 0) -> None:
        self.steps_left = limits.steps + 200 * nodes
        self.text_left = limits.text + 32 * characters
        self.depth_left = limits.depth
        self.seconds = limits.seconds
        self.deadline = time.monotonic() + limits.seconds

    def steps(self, count: int = 1) -> None:
        """Take `count` steps; Exhausted when there are fewer left, or no time."""
        self.steps_left -= count
        if self.steps_left < 0:
            raise Exhausted("the chat template does too much work: it loops or recurses without a sensible end")
        if time.monotonic() > self.deadline:
            raise Exhausted(f"the chat template took over {self.seconds:g} seconds")

    def text(self, characters: int) -> None:
        """Take `characters` of text about to be made."""
        self.steps()
        self.text_left -= characters
        if self.text_left < 0:
            raise Exhausted("the chat template makes too much text")

    def contents(self, value: object) -> int:
        """Take a step for each value inside `value`; returns the characters of all strings in it."""
        nodes, characters = measure(value, self.steps_left)
        self.steps(nodes)
        return characters

    def printed(self, value: object, times: int = 1) -> None:
        """Take what `value` as text costs, `times` over."""
        if isinstance(value, str):
            self.text(len(value) * times)
        else:
            nodes, characters = measure(value, self.steps_left)
            self.steps(nodes)
            self.text((4 * characters + 24 * nodes) * times)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper for the length of a call."""
        self.steps()
        if not self.depth_left:
            raise Exhausted("the chat template recurses too deep")
        self.depth_left -= 1
        try:
            yield
        finally:
            self.depth_left += 1


_VIEWS: tuple[type, ...] = (list, tuple, set, frozenset, type({}.keys()), type({}.values()), type({}.items()))


def measure(value: object, most: int) -> tuple[int, int]:
    """Nodes and characters of a value seen as a tree (shared parts count each time); stops soon after `most` nodes."""
    stack, nodes, characters = [value], 0, 0
    while stack:
        if (nodes := nodes + 1) > most or len(stack) > most:
            return most + 1, characters
        value = stack.pop()
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            stack.extend(value)
            stack.extend(value.values())
        elif isinstance(value, _VIEWS):
            stack.extend(cast(Iterable[object], value))
        elif isinstance(value, range):
            nodes += len(value)
        elif isinstance(value, Namespace):
            stack.append(object.__getattribute__(value, "_Namespace__attrs"))
    return nodes, characters
