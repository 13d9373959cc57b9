"""How most models mark reasoning."""

from __future__ import annotations

from tensormill.chat.parse.formats import Mark

THINK = (
    Mark(" <think>", "reasoning", start=True),
    Mark(" </think>", "content", within="reasoning"),
    Mark(" </think>", "content", start=True),  # of reasoning that the prompt had opened, unnoticed
)
THINK_TOKENS = ("<think>", "</think>")
