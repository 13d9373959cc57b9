"""Clients that let others wait: headers that never come, answers that are never read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from server.live import Live
from tensormill.server.connection import Connection

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class App:
    """Answers without an end."""

    def __init__(self) -> None:
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] == "/short":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        self.under_way += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            gone = asyncio.create_task(_gone(receive))
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)  # a closed connection takes everything at once
        finally:
            self.under_way -= 1


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def serving(app: App, patience: float = 0.3) -> AsyncIterator[int]:
    hasty = type("Hasty", (Connection,), {"patience": patience})
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(uvicorn.Config(app, http=hasty, log_config=None, lifespan="off"))
        running = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            await running


@pytest.mark.parametrize("sent", [b"", HEAD[:9], HEAD, b"GET /short HTTP/1.1\r\nHost: localhost\r\n\r\n" + HEAD])
def test_headers_that_do_not_come_end_the_connection(sent: bytes) -> None:
    async def ends() -> None:
        async with serving(App()) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            with suppress(ConnectionResetError):  # that is how it may end, after what was answered
                async with asyncio.timeout(30):
                    while await reader.read(1000):
                        pass
            writer.close()

    asyncio.run(ends())


def test_an_answer_that_nobody_reads_gives_its_place_back() -> None:
    async def given_back() -> None:
        app = App()
        async with serving(app) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)  # reads no more than it must
            writer.write(HEAD + b"\r\n")
            async with asyncio.timeout(30):
                while not app.under_way:
                    await asyncio.sleep(0.01)
                while app.under_way:
                    await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(given_back())


def test_whoever_reads_slowly_is_served_on() -> None:
    async def served() -> None:
        app = App()
        async with serving(app, patience=1.5) as port:  # the system's buffers let a writer wait for several reads
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(HEAD + b"\r\n")
            got = 0
            async with asyncio.timeout(30):
                for _ in range(20):  # longer than patience in all
                    await asyncio.sleep(0.1)
                    for _ in range(40):
                        got += len(await reader.readexactly(1 << 14))
            assert got == 20 * 40 << 14 and app.under_way
            writer.close()

    asyncio.run(served())


@pytest.mark.parametrize("headers", [{"host": "["}, {"host": "[::1"}, {"origin": "http://["}])
def test_addresses_that_are_none_are_refused(live: Live, headers: dict[str, str]) -> None:
    answer = httpx.get(live.url + "/v1/models", headers=headers, timeout=60)
    assert answer.status_code == 403 and "no address" in answer.json()["error"]["message"]
    assert answer.headers["x-request-id"]
