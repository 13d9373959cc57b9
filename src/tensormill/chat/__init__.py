"""Messages → prompt text: chat templates from the file or built in, run in a sandbox with a budget."""

from tensormill.chat.budget import Exhausted, Limits
from tensormill.chat.builtin import FORMATS
from tensormill.chat.prompts import Prompt, Prompts
from tensormill.chat.template import ChatTemplate

__all__ = ["FORMATS", "ChatTemplate", "Exhausted", "Limits", "Prompt", "Prompts"]
