"""Where an answer of a format puts reasoning, content and calls: what stands before and behind each, written canonically.

The table of formats says how they are read; this says the same for those parts of an answer that `Writing` leaves out. A
format without a row here reasons between the first of its `thinks` and that one's end.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensormill.chat.parse import Format


@dataclass(frozen=True, slots=True)
class Frame:
    """Text around reasoning (optional, before everything else), content and calls (`calls` may have {name}).

    `inner`: the answer begins in the middle of a header only behind a prompt that ends with this; else it is all content.
    """

    reasoning: tuple[str, str] | None = None
    content: tuple[str, str] = ("", "")
    calls: str = ""
    inner: str = ""


_CLOSE = {
    "<think>": "</think>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<think:opensource>": "</think:opensource>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|channel>thought": "<channel|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
}
_FRAMES = {
    "harmony": Frame(
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        content=("<|channel|>final<|message|>", ""),
        inner="<|start|>assistant",
    ),
    "muse": Frame(
        (" to=self<|message|>", "<|eom|><|start|>assistant"),
        content=(" to=user<|message|>", ""),
        calls=" to={name}<|message|>",
        inner="<|start|>assistant",
    ),
    "kimi-k3": Frame(
        ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        content=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ),
    "solar": Frame(
        ("<|think|>", "<|end|><|begin|>assistant"),
        content=("<|content|>", ""),
        inner="<|begin|>assistant",
    ),
    "command": Frame(
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        content=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
}


def frame(form: Format) -> Frame:
    """The frame of a format."""
    known = _FRAMES.get(form.name)
    if known is not None:
        return known
    opens = next((t for t in form.thinks if t in _CLOSE), None)
    return Frame((opens, _CLOSE[opens]) if opens else None)
