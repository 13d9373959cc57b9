"""Reads what a user says in `tensormill chat`: with line editing on a terminal, else from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


def lines() -> Iterator[str]:
    """Messages, one at a time; a backslash at the end of a line joins the next."""
    return _typed() if sys.stdin.isatty() and sys.stdout.isatty() else _piped()


def _piped() -> Iterator[str]:
    held: list[str] = []
    for line in sys.stdin:
        line = line.rstrip("\n")  # noqa: PLW2901
        if line.endswith("\\"):
            held.append(line[:-1])
            continue
        yield "\n".join([*held, line])
        held.clear()
    if held:
        yield "\n".join(held)


def _typed() -> Iterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(multiline=True, key_bindings=keys, prompt_continuation="· ")
    pressed = False
    while True:
        try:
            yield _prompt(session)
            pressed = False
        except EOFError:
            return
        except KeyboardInterrupt:
            if pressed:
                return
            pressed = True
            print("Ctrl-C once more, Ctrl-D or /exit leaves", file=sys.stderr)


def _prompt(session: PromptSession[str]) -> str:
    """One entry; KeyboardInterrupt for Ctrl-C.

    While the prompt is open Ctrl-C is a key. Before, it is a signal, and one that breaks into the making of the prompt's event
    loop leaves it half made: so it is noted, and acted on when the prompt runs.
    """
    import signal

    early: list[int] = []

    def start() -> None:
        if early:
            session.app.exit(exception=KeyboardInterrupt())

    before = signal.signal(signal.SIGINT, lambda number, _frame: early.append(number))
    try:
        return session.prompt("› ", handle_sigint=False, pre_run=start)
    finally:
        signal.signal(signal.SIGINT, before)
