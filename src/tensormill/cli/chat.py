"""`tensormill chat`: a conversation in the terminal. Slash commands are in `slash.py`, input in `lines.py`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tensormill.cli.settings import ModelFlags, SamplingFlags
from tensormill.config import EngineConfig, SamplingConfig
from tensormill.errors import TensorMillError

if TYPE_CHECKING:
    from tensormill.cli.slash import Conversation
    from tensormill.engine import Engine, Session


def main(
    model: str | None = None,
    /,
    *,
    system: str | None = None,
    think: bool | None = None,
    engine: ModelFlags = EngineConfig(),  # noqa: B008  (frozen)
    sampling: SamplingFlags = SamplingConfig(),  # noqa: B008
) -> int:
    """Talk with MODEL (without one: the demo model). /help lists what can be done on the way.

    Parameters
    ----------
    model
        A .gguf file; any part of a split one.
    system
        A system message.
    think
        Ask a model that can reason to do so, or not to.
    """
    from tensormill.cli.lines import lines
    from tensormill.cli.models import load
    from tensormill.cli.settings import with_suggestions
    from tensormill.cli.slash import Conversation, command

    extra: dict[str, Any] = {} if think is None else {"enable_thinking": think}
    with load(model, engine, answers=True) as loaded:
        talk = Conversation(str(loaded.file.path), with_suggestions(sampling, loaded.metadata), system)
        session, template = loaded.session(), loaded.prompts.template  # an unusable tokenizer fails here, not later
        name = template.name + (" (built in: the file has none; `run --raw` continues text)" if template.guessed else "")
        about = f"{loaded.file.path.name}, context {loaded.context} tokens, chat template {name}"
        _tell(f"{about}; /help lists commands, Ctrl-D leaves")
        for line in lines():
            if not line.strip():
                continue
            if not line.startswith("/"):
                _turn(loaded, session, talk, line, extra)
                continue
            told = command(talk, line)
            if told is None:
                break
            _tell(told)
    return 0


def _turn(engine: Engine, session: Session, talk: Conversation, line: str, extra: dict[str, Any]) -> None:
    """Ask and answer once; what fails is told and leaves the conversation as it was."""
    from tensormill.cli.answer import answer, closing_line

    question = {"role": "user", "content": line}
    try:
        prompt = engine.prompts.chat([*talk.messages, question], extra)
        done = answer(session, prompt.ids, talk.sampling)
    except TensorMillError as error:
        _tell(str(error))
        return
    print(flush=True)
    if done.tokens or done.finish != "interrupted":  # stopped before it answered: the question may be asked anew
        talk.turns += [question, {"role": "assistant", "content": done.text}]
    _tell(closing_line(session.timings, done.finish))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
