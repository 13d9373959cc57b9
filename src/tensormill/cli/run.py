"""`tensormill run`: answers one prompt."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensormill.cli.settings import AsJson, ModelFlags, SamplingFlags
from tensormill.config import EngineConfig, SamplingConfig
from tensormill.errors import RequestError

if TYPE_CHECKING:
    from tensormill.engine import Engine


_PATH = re.compile(r"^\S*\.gguf\S*$|^[~.]{0,2}/\S*$")  # a lone word like these is meant as a file


def main(
    model: str | None = None,
    prompt: str | None = None,
    /,
    *,
    system: str | None = None,
    raw: Annotated[bool, Parameter(negative="")] = False,
    think: bool | None = None,
    json_: AsJson = False,
    engine: ModelFlags = EngineConfig(),  # noqa: B008  (frozen)
    sampling: SamplingFlags = SamplingConfig(),  # noqa: B008
) -> int:
    """Answer PROMPT (without one: standard input) with MODEL (without one: the demo model).

    Parameters
    ----------
    model
        A .gguf file; any part of a split one.
    prompt
        What to say to the model.
    system
        A system message.
    raw
        Continue PROMPT as it is, without a chat template.
    think
        Ask a model that can reason to do so, or not to.
    json_
        Print the answer, its tokens and its speed as JSON.
    """
    from tensormill.chat.seal import Sealed
    from tensormill.cli import answer as answers
    from tensormill.cli.models import find, load
    from tensormill.cli.settings import with_suggestions

    model, prompt = _sorted_out(model, prompt)
    if model is None:
        print(f"using the demo model {find(None).name}", file=sys.stderr)
    with load(model, engine, answers=True) as loaded:
        tokens = loaded.prompts.ids(Sealed(prompt)) if raw else _chat_prompt(loaded, prompt, system, think)
        session = loaded.session()
        done = answers.answer(session, tokens, with_suggestions(sampling, loaded.metadata), (lambda _: None) if json_ else None)
    print(json.dumps(answers.as_json(session.timings, done), ensure_ascii=False) if json_ else "")
    sys.stdout.flush()
    print(answers.closing_line(session.timings, done.finish), file=sys.stderr)
    return 130 if done.finish == "interrupted" else 0


def _sorted_out(model: str | None, prompt: str | None) -> tuple[str | None, str]:
    """Of a lone argument, whether it is the model or the prompt; the prompt from standard input if there is none."""
    from pathlib import Path

    from tensormill.cli.models import find

    if model is not None and prompt is None and not (_PATH.search(model) or Path(model).is_file()):
        model, prompt = None, model
    if model is not None:
        find(model)  # a wrong name is told before anybody waits for a prompt
    if prompt is None or prompt == "-":
        if sys.stdin.isatty():
            raise RequestError('there is no prompt: tensormill run MODEL.gguf "PROMPT", or pipe one in')
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise RequestError("the prompt is empty")
    return model, prompt


def _chat_prompt(engine: Engine, prompt: str, system: str | None, think: bool | None) -> list[int]:
    if engine.prompts.template.guessed:
        print(
            f"the file has no chat template, perhaps since it is no chat model: the prompt is written as "
            f"{engine.prompts.template.name!r} (--raw continues it as it is, --template NAME writes it otherwise)",
            file=sys.stderr,
        )
    messages = [{"role": "system", "content": system}] if system else []
    extra: dict[str, Any] = {} if think is None else {"enable_thinking": think}
    return engine.prompts.chat([*messages, {"role": "user", "content": prompt}], extra).ids
