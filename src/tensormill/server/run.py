"""Runs a server: models from paths, who may call, the socket, uvicorn, and the way out."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from tensormill.config import EngineConfig, ServerConfig, bytes_of
from tensormill.errors import RequestError, TensorMillError
from tensormill.observe.logs import set_up
from tensormill.observe.traces import Traces
from tensormill.server.app import application
from tensormill.server.connection import Connection
from tensormill.server.heap import keep_large_buffers_apart
from tensormill.server.keys import Keys
from tensormill.server.leaving import Leaving
from tensormill.server.registry import Registry
from tensormill.server.served import ServedModel
from tensormill.server.server import Server

log = logging.getLogger("tensormill.server")


def serve(
    paths: Sequence[Path], config: ServerConfig, engine: EngineConfig, *, aliases: Sequence[str] = (),
    chat_format: str | None = None, preload: bool = True,
) -> int:  # fmt: skip
    """Serve until SIGTERM or Ctrl-C; the exit code. RequestError for settings that cannot be."""
    keys = Keys.read(config.api_key_file) if config.api_key_file else Keys()
    _check_public(config, keys)
    _check_tls(config)
    set_up(config.log_level)
    keep_large_buffers_apart()
    models = [ServedModel(name, p, engine, chat_format=chat_format) for name, p in _named(paths).items()]
    for model in models:
        _ = model.metadata  # a file that is none is refused now
    traces = Traces.to(config.otlp_endpoint)
    memory = bytes_of(config.memory, "memory") if config.memory else 0
    shared = keys.owners > 1
    registry = Registry(models, _aliases(aliases, models), memory=memory, max_queue=config.max_queue, shared=shared)
    sock = _listen(config.host, config.port)
    try:
        return asyncio.run(_serve(Server(config, registry, traces), keys, sock, preload))
    finally:
        traces.close()


async def _serve(server: Server, keys: Keys, sock: socket.socket, preload: bool) -> int:
    config = server.config
    runner = Leaving(
        uvicorn.Config(
            application(server, keys),
            http=Connection,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            ssl_certfile=config.tls_cert,
            ssl_keyfile=config.tls_key,
        ),
        server.registry,
        config.drain,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # before uvicorn listens to them
        signal.signal(number, runner.handle_exit)
    host, port = sock.getsockname()[:2]
    url = f"{'https' if config.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    loading = asyncio.create_task(_begin(server, runner, url, preload))
    await runner.serve(sockets=[sock])
    if not loading.cancel():
        loading.result()
    return 0


async def _begin(server: Server, runner: uvicorn.Server, url: str, preload: bool) -> None:
    """Load the first model, then say where it is served; a server whose model cannot be loaded ends."""
    try:
        if preload:
            log.info("loading the first model; requests wait", extra={"url": url})
            async with server.registry.use(""):
                pass
        print(f"serving on {url}", file=sys.stderr, flush=True)
    except TensorMillError:
        if not runner.should_exit:  # else it ends anyway, and that is why
            runner.should_exit = True
            raise


def _check_public(config: ServerConfig, keys: Keys) -> None:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise RequestError(f"there is no address {config.host!r}: {error.strerror or error}") from error
    public = not all(ipaddress.ip_address(str(a).split("%")[0]).is_loopback for a in addresses)
    if public and not keys and not config.allow_public:
        raise RequestError(
            f"{config.host} can be reached from other machines, and nobody would need a key: "
            "give --api-key-file FILE, or --allow-public if that is meant, or --host 127.0.0.1"
        )


def _check_tls(config: ServerConfig) -> None:
    if config.tls_cert is None or config.tls_key is None:
        return
    for flag, path in (("--tls-cert", config.tls_cert), ("--tls-key", config.tls_key)):
        if not path.is_file():
            raise RequestError(f"{flag}: there is no file {path}")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_cert, config.tls_key)
    except OSError as error:
        what = error.strerror or str(error)
        raise RequestError(f"--tls-cert {config.tls_cert} and --tls-key {config.tls_key} are no PEM pair: {what}") from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise RequestError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --host or --port"
        ) from error


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """Models by name: the file's, without its ending and, of a split file, the number of the part."""
    found: dict[str, Path] = {}
    for path in paths:
        stem = path.name.removesuffix(".gguf")
        head, _, tail = stem.rpartition("-of-")
        name = head.rpartition("-")[0] if head and tail.isdigit() else stem
        if name in found:
            raise RequestError(f"two models would be called {name!r}: {found[name]} and {path}")
        found[name] = path
    return found


def _aliases(given: Sequence[str], models: Sequence[ServedModel]) -> dict[str, str]:
    found = {}
    for word in given:
        alias, _, name = word.partition("=")
        name = name or models[0].name
        if name not in {m.name for m in models}:
            raise RequestError(f"--alias {word}: there is no model {name!r}; there are: {', '.join(m.name for m in models)}")
        found[alias] = name
    return found
