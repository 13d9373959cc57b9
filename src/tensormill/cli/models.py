"""From what a user typed to a loaded model: the file, the demo model, the progress bar while it loads."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tensormill.config import DRAFTS
from tensormill.errors import ModelError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensormill.config import EngineConfig
    from tensormill.engine import Engine

CACHE = Path.home() / ".cache" / "tensormill"
DEMO = "SmolLM2-135M-Instruct.Q4_1.gguf"


def find(model: str | None) -> Path:
    """The file of `model`, or the demo model's; RequestError or ModelError says how to get one."""
    if model is None:
        return _demo()
    path = Path(model).expanduser()
    if not path.exists():
        raise RequestError(f"there is no file {model}; give the path of a .gguf file")
    if path.is_dir():
        raise RequestError(f"{model} is a folder; give the path of a .gguf file")
    return path


def _demo() -> Path:
    for folder in ("models", "test-models"):
        if (path := CACHE / folder / DEMO).exists():
            return path
    raise ModelError(
        f"the demo model {DEMO} is not in {CACHE / 'models'}: `make run` in a checkout fetches it (98 MB); "
        "or name a model: tensormill run MODEL.gguf PROMPT"
    )


def load(model: str | None, config: EngineConfig, *, answers: bool = False) -> Engine:
    """The engine for a model, with a progress bar on a terminal's stderr; one that `answers` guesses unless told not to."""
    path = find(model)
    if answers and config.drafts is None:
        config = replace(config, drafts=DRAFTS)
    elif not answers and config.guesses:
        raise RequestError("--drafts and --draft-model are for answers: run, chat and serve; leave them out here")
    engine = _loaded(path, config, (lambda engine: engine.tokenizer) if answers else None)
    from tensormill.models import context_length

    trained = context_length(engine.metadata)
    if 0 < trained < engine.context:
        print(f"note: the model was trained for {trained} tokens; beyond them its answers get worse", file=sys.stderr)
    return engine


def _loaded(path: Path, config: EngineConfig, beside: Callable[[Engine], object] | None) -> Engine:
    from tensormill.engine import Engine

    if not sys.stderr.isatty():
        return Engine.load(path, config, beside=beside)
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("loading {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return Engine.load(path, config, progress, beside=beside)
