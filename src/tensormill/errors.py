"""Every exception a user can meet.

A message says what was found, what was expected, and what mends it. The command line prints the message alone;
anything that is not a `TensorMillError` is a bug and keeps its traceback.
"""

from __future__ import annotations


def told(error: OSError) -> str:
    """A system's error without its number, and with the file where one is known."""
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename is not None else what


class TensorMillError(Exception):
    """Root of all errors that a user can act on."""


class GGUFError(TensorMillError):
    """A GGUF file is truncated, corrupt, hostile or of an unknown kind; names the byte offset where known."""

    def __init__(self, message: str, *, path: str | None = None, offset: int | None = None) -> None:
        where = "".join((f"{path}: " if path else "", f"at byte {offset}: " if offset is not None else ""))
        super().__init__(where + message)
        self.path = path
        self.offset = offset


class TokenizerError(TensorMillError):
    """A vocabulary cannot be used, or text cannot be encoded with it."""


class TemplateError(TensorMillError):
    """A chat template is broken, refuses the messages, or exceeded its limits."""


class ModelError(TensorMillError):
    """A model file does not fit its architecture: unknown name, missing, unused or misshapen tensors or keys."""


class ProgramError(TensorMillError):
    """A program is inconsistent: shapes that do not fit, an op used against its spec."""


class BackendError(TensorMillError):
    """A backend declines a program, with the reason, or this machine cannot run it."""


class RequestError(TensorMillError):
    """A prompt or a setting is out of range: too long for the context, an unknown token id, a wrong option."""
