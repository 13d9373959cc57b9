"""`tensormill serve`: answers over HTTP until it is told to stop."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tensormill.cli.settings import ModelFlags
from tensormill.config import EngineConfig, ServerConfig

ServerFlags = Annotated[ServerConfig, Parameter(name="*", group="Server")]
SEQUENCES = 16  # computed together
ROWS = 64  # of a text that is embedded, at once


def main(
    *models: str,
    alias: Annotated[list[str], Parameter(negative="")] = [],  # noqa: B006
    chat_format: str | None = None,
    preload: bool = True,
    server: ServerFlags = ServerConfig(),  # noqa: B008  (frozen)
    engine: ModelFlags = EngineConfig(),  # noqa: B008
) -> int:
    """Serve MODELS (without one: the demo model): OpenAI's API and its kin on http://HOST:PORT.

    Other defaults than elsewhere: --sequences 16, --rows 64.

    Parameters
    ----------
    models
        .gguf files. The first is loaded at once, others when they are first asked for.
    alias
        Another name: for the first model, or as ALIAS=NAME. May be given several times.
    chat_format
        How answers are parsed, instead of what the chat template tells.
    preload
        Load the first model before the first request.
    """
    from tensormill.cli.models import find
    from tensormill.server.run import serve

    paths: list[Path] = [find(m) for m in models or [None]]
    return serve(paths, server, _for_many(engine), aliases=alias, chat_format=chat_format, preload=preload)


def _for_many(engine: EngineConfig) -> EngineConfig:
    """Other defaults than for one user: what is not on the command line."""
    given = {word.split("=", 1)[0] for word in sys.argv}
    more: dict[str, Any] = {"sequences": SEQUENCES, "rows": ROWS}
    return replace(engine, **{k: v for k, v in more.items() if f"--{k}" not in given})
