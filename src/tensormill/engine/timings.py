"""How long an answer took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Timings:
    """Tokens and seconds of prefill and decode; `reused` prompt tokens were still in the caches.

    Of `drafted` guesses `accepted` came true, when the answer has ended.
    """

    reused: int = 0
    prefill_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_tokens: int = 0
    decode_seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0

    def prefill(self, tokens: int, seconds: float) -> None:
        """Count a prompt."""
        self.prefill_tokens += tokens
        self.prefill_seconds += seconds

    def decode(self, tokens: int, seconds: float) -> None:
        """Count a step's decoded tokens."""
        self.decode_tokens += tokens
        self.decode_seconds += seconds

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens a second."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Answer tokens a second."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0
