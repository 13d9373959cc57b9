"""The slash commands of `tensormill chat`: each changes the conversation and answers with a line for the user."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensormill.config import SamplingConfig
from tensormill.errors import TensorMillError, told

HELP = """\
/reset               forget the conversation, keep the system message
/system [TEXT]       set the system message; without TEXT drop it
/set [NAME VALUE]    change a sampling setting (temperature 0.5, stop END, logit-bias 5:-1 8:2); without, list them
/save FILE           write the conversation as JSON
/help                this list
/exit                leave (Ctrl-D and Ctrl-C twice do so too)
Enter sends. For more lines end a line with a backslash or press Alt-Enter. Ctrl-C stops an answer."""


@dataclass
class Conversation:
    """What was said so far, and how answers are drawn."""

    model: str
    sampling: SamplingConfig
    system: str | None = None
    turns: list[dict[str, Any]] = field(default_factory=list)
    saved: Path | None = None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All messages, the system message first."""
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self.turns]


def command(talk: Conversation, line: str) -> str | None:
    """Carry out a slash command; what to tell the user, or None to leave."""
    name, _, rest = line[1:].partition(" ")
    if name in ("exit", "quit", "bye"):
        return None
    action = _COMMANDS.get(name)
    if action is None:
        return f"there is no command /{name}\n{HELP}"
    try:
        return action(talk, rest.strip())
    except OSError as error:
        return told(error)
    except TensorMillError as error:
        return str(error)


def _reset(talk: Conversation, _: str) -> str:
    talk.turns.clear()
    return "forgotten"


def _system(talk: Conversation, text: str) -> str:
    talk.system = text or None
    return "system message set" if text else "no system message"


def _save(talk: Conversation, name: str) -> str:
    if not name:
        return "/save needs a file name"
    path = Path(name).expanduser()
    if path.exists() and path != talk.saved:
        return f"{path} is there already; choose another name"
    path.write_text(json.dumps({"model": talk.model, "messages": talk.messages}, ensure_ascii=False, indent=2) + "\n", "utf-8")
    talk.saved = path
    return f"saved {len(talk.messages)} messages to {path}"


def _set(talk: Conversation, text: str) -> str:
    settings = dataclasses.asdict(talk.sampling)
    name, _, value = text.partition(" ")
    name = name.replace("-", "_")
    if not name:
        return "\n".join(f"{key} {'none' if value in (None, ()) else value}" for key, value in settings.items())
    if name in settings and not value.strip():
        return f"{name} is {settings[name]}"
    if name not in settings:
        return f"/set NAME VALUE, where NAME is one of: {', '.join(settings)}"
    try:
        talk.sampling = dataclasses.replace(talk.sampling, **{name: parsed(name, value.strip())})
    except ValueError:
        return f"{name} cannot be {value.strip()!r}"
    return f"{name} is {getattr(talk.sampling, name)}"


def parsed(name: str, text: str) -> Any:
    """A sampling setting from text; ValueError if it is not of the setting's kind."""
    none = text.lower() in ("none", "off")
    if name == "stop":
        return () if none else (text,)
    if name in ("seed", "max_tokens"):
        return None if none else int(text)
    default = getattr(SamplingConfig(), name)
    if isinstance(default, bool):
        if text.lower() not in _SWITCH:
            raise ValueError(text)
        return _SWITCH[text.lower()]
    if name == "dry_breakers":
        return () if none else tuple(text.split())
    if name == "logit_bias":
        pairs = [] if none else [pair.split(":") for pair in text.split()]
        return tuple((int(token), float(bias)) for token, bias in pairs)
    return type(default)(text)


_SWITCH = {"true": True, "on": True, "1": True, "false": False, "0": False, "off": False}
_COMMANDS: dict[str, Callable[[Conversation, str], str]] = {
    "reset": _reset,
    "system": _system,
    "save": _save,
    "set": _set,
    "help": lambda talk, _: HELP,
}
