"""What an answer of a chat format may be, as a grammar: reasoning runs free, content or calls have the form that was asked for."""

from tensormill.chat.constrain.answer import Wanted, constrain

__all__ = ["Wanted", "constrain"]
