"""`tensormill serve`: answers over HTTP until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tensormill.config import ServedConfig, ServerConfig

ServerFlags = Annotated[ServerConfig, Parameter(name="*", group="Server")]
EngineFlags = Annotated[ServedConfig, Parameter(name="*", group="Model")]


def main(
    *models: str,
    alias: Annotated[list[str], Parameter(negative="")] = [],  # noqa: B006
    chat_format: str | None = None,
    preload: bool = True,
    server: ServerFlags = ServerConfig(),  # noqa: B008  (frozen)
    engine: EngineFlags = ServedConfig(),  # noqa: B008
) -> int:
    """Serve MODELS (without one: the demo model): OpenAI's API and its kin on http://HOST:PORT.

    Parameters
    ----------
    models
        .gguf files. The first is loaded at once, others when they are first asked for.
    alias
        Another name: for the first model, or as ALIAS=NAME. May be given several times.
    chat_format
        How answers are parsed, instead of what the chat template tells: hermes, llama3, mistral, …; a wrong name lists all.
    preload
        Load the first model before the first request.
    """
    from tensormill.cli.models import find
    from tensormill.server.run import serve

    paths: list[Path] = [find(m) for m in models or [None]]
    return serve(paths, server, engine, aliases=alias, chat_format=chat_format, preload=preload)
