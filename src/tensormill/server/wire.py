"""What crosses the socket between server and engine process: frames of msgpack, each a list of typed messages.

The engine's own messages are `tensormill.engine.messages`; those here start a process and ask how it is.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence

import msgspec

from tensormill.config import EngineConfig
from tensormill.engine.messages import Cancel, Embed, Embedded, Failed, Generate, Output, Score, Scored, Stats

_HEAD = struct.Struct("<I")


class Load(msgspec.Struct, frozen=True, tag=True):
    """Load a model; the first message to an engine process."""

    path: str
    config: EngineConfig
    most: int | None = None  # bytes that it may take


class Probe(msgspec.Struct, frozen=True, tag=True):
    """How is it? Answered with Stats between two steps."""


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Bytes of weights laid out, and of how many."""

    done: int
    total: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded: most tokens of a sequence, tokens that the caches hold, sequences at once; bytes of all it takes."""

    context: int
    cached: int
    sequences: int
    n_vocab: int
    n_embd: int
    rows: int
    bytes: int


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The model cannot be loaded, and why; the process ends."""

    message: str


Down = Load | Probe | Generate | Cancel | Embed | Score
Up = Progress | Ready | Broken | Output | Failed | Embedded | Scored | Stats

_encoder = msgspec.msgpack.Encoder()
_down = msgspec.msgpack.Decoder(list[Down])
_up = msgspec.msgpack.Decoder(list[Up])


def frame(messages: Sequence[Down] | Sequence[Up]) -> bytes:
    """Messages as they are sent: their length, then msgpack."""
    body = _encoder.encode(messages)
    return _HEAD.pack(len(body)) + body


def receive(sock: socket.socket) -> list[Down]:
    """The next messages for an engine process; EOFError when the server is gone."""
    (size,) = _HEAD.unpack(_exactly(sock, _HEAD.size))
    return _down.decode(_exactly(sock, size))


async def read(reader: asyncio.StreamReader) -> list[Up]:
    """The next messages of an engine process; IncompleteReadError when it is gone."""
    (size,) = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return _up.decode(await reader.readexactly(size))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
