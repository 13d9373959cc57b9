"""How most models mark reasoning, and the formats that mark nothing else."""

from __future__ import annotations

from tensormill.chat.parse.formats import Format, Mark

THINK = (
    Mark(" <think>", "reasoning", start=True),
    Mark(" </think>", "content", within="reasoning"),
    Mark(" </think>", "content", start=True),  # of reasoning that the prompt had opened, unnoticed
)
THINK_TOKENS = ("<think>", "</think>")
THINKER = Format("think", marks=THINK, keeps=THINK_TOKENS, thinks=("<think>",))
PLAIN = Format("plain")
