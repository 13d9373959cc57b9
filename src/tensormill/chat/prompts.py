"""`Prompts`: a file's tokenizer and chat template, and the prompts that they make of conversations together.

The template's own control tokens are tokens; what people wrote is text, whatever it spells (`seal.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensormill.chat.constrain.frames import frame
from tensormill.chat.parse import named
from tensormill.chat.seal import Seal, Sealed
from tensormill.chat.template import ChatTemplate
from tensormill.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text, and as the ids that a model sees."""

    text: str
    ids: list[int]


class Prompts:
    """Built at first use, part by part: a file may have no usable tokenizer, or no usable template.

    `pre` and `template` take another pre-tokenizer and template than the file's, `format` another format of answers than
    the template tells.
    """

    def __init__(
        self, metadata: Mapping[str, object], *, pre: str | None = None, template: str | None = None, format: str | None = None
    ) -> None:
        self._metadata, self._pre, self._template, self._format = metadata, pre, template, format

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back; TokenizerError if the file has none or an unknown one."""
        return Tokenizer.from_metadata(self._metadata, pre=self._pre)

    @cached_property
    def template(self) -> ChatTemplate:
        """Messages to text: the file's template, or a built-in one that suits its vocabulary."""
        t = self.tokenizer
        bos, eos = ("" if i is None else t.tokens[i] for i in (t.bos, t.eos))
        template = ChatTemplate.from_metadata(self._metadata, bos=bos, eos=eos, name=self._template)
        if self._format is not None:
            template.format = named(self._format)
        return template

    @cached_property
    def seal(self) -> Seal:
        """What keeps contents from becoming control tokens."""
        reasoning = frame(self.template.format).reasoning or ()
        return Seal(self.tokenizer.controls, own=[text.strip() for text in reasoning])

    def chat(
        self, messages: Sequence[Mapping[str, Any]], values: Mapping[str, Any] | None = None, *, behind: str = ""
    ) -> Prompt:
        """The prompt for messages (`values` are the template's variables) and the beginning of an answer `behind` it.

        Raises TemplateError if the template refuses the messages, is broken, or exceeds its limits.
        """
        made = self.template.sealed(self.seal, messages, {"add_generation_prompt": True, **(values or {})}, behind)
        return Prompt(made.plain, self.ids(made))

    def ids(self, made: Sealed) -> list[int]:
        """Ids of a rendered prompt; a beginning that both the template and the tokenizer write is kept once."""
        ids = self.tokenizer.encode(made.text, add_special=True, parse_special=True, sign=made.sign)
        doubled = len(ids) > 1 and ids[0] == ids[1] == self.tokenizer.bos
        return ids[1:] if doubled else ids
