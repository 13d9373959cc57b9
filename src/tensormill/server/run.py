"""Runs a server: models from paths, the socket, uvicorn, and the way out."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from tensormill.config import EngineConfig, ServerConfig
from tensormill.errors import RequestError
from tensormill.server.app import application
from tensormill.server.registry import Registry
from tensormill.server.served import ServedModel
from tensormill.server.server import Server


def serve(
    paths: Sequence[Path], config: ServerConfig, engine: EngineConfig, *, aliases: Sequence[str] = (),
    chat_format: str | None = None, preload: bool = True,
) -> int:  # fmt: skip
    """Serve until SIGTERM or Ctrl-C; the exit code."""
    models = [ServedModel(_name(p), p, engine, chat_format=chat_format) for p in paths]
    registry = Registry(models, _aliases(aliases, models), memory=config.memory, max_queue=config.max_queue)
    server = Server(config, registry)
    return asyncio.run(_serve(server, preload))


async def _serve(server: Server, preload: bool) -> int:
    config = server.config
    sock = _listen(config.host, config.port)
    host, port = sock.getsockname()[:2]
    runner = uvicorn.Server(
        uvicorn.Config(
            application(server),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=int(config.drain) or None,
            ssl_certfile=config.tls_cert,
            ssl_keyfile=config.tls_key,
            server_header=False,
        )
    )
    if preload:
        async with server.registry.use(""):
            pass
    print(f"serving on http{'s' if config.tls_cert else ''}://{host}:{port}", file=sys.stderr, flush=True)
    await runner.serve(sockets=[sock])
    return 0


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --host or --port"
        ) from error


def _name(path: Path) -> str:
    stem = path.name.removesuffix(".gguf")
    head, _, tail = stem.rpartition("-of-")
    return head.rpartition("-")[0] if head and tail.isdigit() else stem


def _aliases(given: Sequence[str], models: Sequence[ServedModel]) -> dict[str, str]:
    found = {}
    for word in given:
        alias, _, name = word.partition("=")
        name = name or models[0].name
        if name not in {m.name for m in models}:
            raise RequestError(f"--alias {word}: there is no model {name!r}; there are: {', '.join(m.name for m in models)}")
        found[alias] = name
    return found
