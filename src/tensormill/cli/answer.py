"""One answer on the terminal: streams its text to stdout and says on stderr how fast it was."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensormill.cli.interrupt import Interrupt

if TYPE_CHECKING:
    from tensormill.config import SamplingConfig
    from tensormill.engine import Session, Timings


@dataclass(frozen=True)
class Answer:
    """A finished answer; `finish` is stop, length, context or interrupted."""

    text: str
    tokens: list[int]
    finish: str


def answer(
    session: Session, tokens: list[int], sampling: SamplingConfig, show: Callable[[str], object] | None = None
) -> Answer:
    """Generate, passing text to `show` as it comes; Ctrl-C ends it early."""
    show = show or _show
    text, made, finish = "", [], "interrupted"
    with Interrupt() as interrupt:
        for piece in session.generate(tokens, sampling):
            text += piece.text
            if piece.token >= 0:
                made.append(piece.token)
            if piece.text:
                show(piece.text)
            if piece.finish:
                finish = piece.finish
            elif interrupt.pressed:
                break
    return Answer(text, made, finish)


# Control characters could drive the terminal (move, recolour, retitle); a model must not.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | dict.fromkeys(range(127, 160), 0x2421)


def _show(text: str) -> None:
    sys.stdout.write(text.translate(_VISIBLE) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def closing_line(timings: Timings, finish: str) -> str:
    """Tokens and tokens per second of prefill and decode, and why the answer ended where that is not plain."""
    reused = f" ({timings.reused} reused)" if timings.reused else ""
    parts = [
        f"prefill {timings.prefill_tokens} tokens{reused}, {timings.prefill_rate:.1f} tok/s",
        f"decode {timings.decode_tokens} tokens, {timings.decode_rate:.1f} tok/s",
    ]
    if timings.drafted:
        parts.append(f"{timings.accepted} of {timings.drafted} guesses right")
    why = {"length": "cut at --max-tokens", "context": "the context is full", "interrupted": "interrupted"}
    return " · ".join([*parts, why[finish]] if finish in why else parts)


def as_json(timings: Timings, done: Answer) -> dict[str, Any]:
    """An answer for `--json`."""
    return {
        "text": done.text,
        "tokens": done.tokens,
        "finish": done.finish,
        "prefill": {"tokens": timings.prefill_tokens, "tokens_per_second": timings.prefill_rate},
        "decode": {"tokens": timings.decode_tokens, "tokens_per_second": timings.decode_rate},
        "reused": timings.reused,
        "guesses": {"made": timings.drafted, "right": timings.accepted},
    }
