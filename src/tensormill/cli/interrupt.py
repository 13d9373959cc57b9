"""Ctrl-C while a model answers: once asks for a stop after the current token, twice leaves."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """A context in which the first Ctrl-C sets `pressed` and the second raises KeyboardInterrupt.

    A flag, because an exception in the middle of a step would leave a session between two states.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
