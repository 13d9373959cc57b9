"""What an answer of a chat format may be, as a grammar: reasoning is free, content or calls are as they were asked for."""

from tensormill.chat.constrain.answer import Wanted, constrain

__all__ = ["Wanted", "constrain"]
