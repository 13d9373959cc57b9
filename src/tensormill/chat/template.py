"""`ChatTemplate`: messages → the prompt text a model was trained on.

The template comes from the file (`tokenizer.chat_template`, and named ones beside it) or from `builtin.py`. It is
untrusted: `sandbox.py` runs it. What comes back from the model is not parsed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from tensormill.chat.budget import Limits
from tensormill.chat.builtin import FORMATS, choose
from tensormill.chat.messages import Abilities, checked, plain
from tensormill.chat.parse import choose as choose_format
from tensormill.chat.sandbox import Program
from tensormill.chat.seal import Seal, Sealed
from tensormill.chat.turns import Message
from tensormill.errors import TemplateError

_KEY = "tokenizer.chat_template"


class ChatTemplate:
    """A chat template, compiled, with the tokens that templates may print.

    Raises TemplateError, with the line, for a source that does not compile.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "", name: str = "", limits: Limits | None = None):
        self.source = source
        self.name = name
        self.bos = bos
        self.eos = eos
        self.format = choose_format(source)
        """How answers are written and read."""
        self._program = Program(source, limits)
        self._with_tools: ChatTemplate | None = None
        self.guessed = False
        """Whether the file has none, so that a built-in one was chosen: perhaps it never learned to chat."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, bos: str, eos: str, name: str | None = None) -> ChatTemplate:
        """The template of a model file.

        `name` takes a named template of the file or a built-in format instead. Without it the file's default is used
        (and its `tool_use`, if it has one, when tools are given), else the built-in format that fits the vocabulary.
        Raises TemplateError for an unknown name, listing those there are.
        """
        sources = _sources(metadata)
        guessed = name is None and "default" not in sources
        if guessed:
            tokens = metadata.get("tokenizer.ggml.tokens")
            name = choose(tokens if isinstance(tokens, Sequence) else ())
        chosen = name or "default"
        if chosen not in sources and chosen not in FORMATS:
            there = ", ".join((*sources, *FORMATS))
            raise TemplateError(f"there is no chat template {chosen!r}; choose one of: {there}")
        source = sources[chosen] if chosen in sources else FORMATS[chosen].source
        try:
            template = cls(source, bos=bos, eos=eos, name=chosen)
        except TemplateError as error:
            raise TemplateError(f"{error} (--template NAME uses another: {', '.join(FORMATS)})") from None
        template.guessed = guessed
        if name is None and "tool_use" in sources:
            template._with_tools = cls(sources["tool_use"], bos=bos, eos=eos, name="tool_use")
        return template

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **extra: Any,
    ) -> str:
        """The prompt for `messages`; `extra` are variables that some templates know (`enable_thinking`, …).

        Raises TemplateError if the template refuses the messages, is broken, or exceeds its limits.
        """
        values = {**extra, "tools": tools, "documents": documents, "add_generation_prompt": add_generation_prompt}
        return self.sealed(Seal(()), messages, values, now=now).text

    def sealed(
        self, seal: Seal, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any], behind: str = "",
        now: datetime | None = None,
    ) -> Sealed:  # fmt: skip
        """The same, with all variables in `values` and the beginning of an answer `behind` it: contents pass through `seal`."""
        if values.get("tools") and self._with_tools is not None:
            self = self._with_tools  # noqa: PLW0642
        variables: dict[str, Any] = plain(dict(values))
        variables |= {name: variables.get(name) or None for name in ("tools", "documents")}
        answer = {"role": "assistant", "content": behind}
        parts = [self._abilities.fit(checked(messages), variables["tools"] or ()), variables, answer]
        return seal.through(lambda p: self._render(p[0], p[1], now) + str(p[2]["content"]), parts, self.source)

    @cached_property
    def _abilities(self) -> Abilities:
        def render(messages: list[Message], tools: list[dict[str, Any]] | None) -> str:
            return self._render(messages, {"tools": tools, "add_generation_prompt": True}, None)

        return Abilities(render, self.format.writing)

    @property
    def tells_tools(self) -> bool:
        """Whether the template itself tells the model which tools there are."""
        return self._with_tools is not None or self._abilities.tools

    def _render(self, messages: list[Message], variables: dict[str, Any], now: datetime | None) -> str:
        tokens = {"bos_token": self.bos, "eos_token": self.eos}
        return self._program.render({**tokens, **variables, "messages": messages}, now=now)


def _sources(metadata: Mapping[str, object]) -> dict[str, str]:
    found = {"default": metadata.get(_KEY)}
    for key in metadata:
        if key.startswith(_KEY + "."):
            found[key.removeprefix(_KEY + ".")] = metadata.get(key)
    return {name: source for name, source in found.items() if isinstance(source, str) and source.strip()}
