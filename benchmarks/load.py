"""A load generator for servers of OpenAI's /v1/completions on this machine: streams at once, timed piece by piece.

Raw asyncio over HTTP/1.1, so that the client takes little of the CPU that it measures. What is compared, and with whom,
is `serve_vs_llama_server.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 600.0  # seconds for one answer
WORDS = ["river", "stone", "bread", "green", "walk", "over", "north", "small", "paper", "light", "winter", "garden", "seven"]
WORDS += [
    "quick",
    "under",
    "table",
    "voice",
    "cloud",
    "engine",
    "market",
    "silver",
    "letter",
    "bridge",
    "music",
    "island",
    "road",
]


@dataclass(frozen=True)
class Answer:
    """One streamed answer; `stamps` are the seconds at which its pieces came."""

    started: float
    stamps: list[float]
    tokens: int  # of the answer
    prompt: int
    cached: int  # prompt tokens that the server says it did not compute

    @property
    def first(self) -> float:
        """Seconds to the first piece."""
        return self.stamps[0] - self.started

    @property
    def gaps(self) -> list[float]:
        """Seconds between pieces."""
        return [b - a for a, b in zip(self.stamps, self.stamps[1:], strict=False)]


@dataclass(frozen=True)
class Crowd:
    """What many streams at once saw: tokens a second of all together; seconds to the first piece, between pieces, in all."""

    rate: float
    first: float  # median
    gap: float  # median
    gap_p99: float
    seconds: float
    prompt: float  # tokens a request
    cached: float

    @staticmethod
    def of(answers: Sequence[Answer]) -> Crowd:
        """The figures of answers that were streamed together."""
        seconds = max(a.stamps[-1] for a in answers) - min(a.started for a in answers)
        gaps = sorted(g for a in answers for g in a.gaps)
        return Crowd(
            rate=sum(a.tokens for a in answers) / seconds,
            first=median(a.first for a in answers),
            gap=median(gaps),
            gap_p99=gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))],
            seconds=seconds,
            prompt=sum(a.prompt for a in answers) / len(answers),
            cached=sum(a.cached for a in answers) / len(answers),
        )


def prompt(seed: str, words: int) -> str:
    """So many words, the same for the same seed."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def crowd(url: str, prompts: Sequence[str], tokens: int) -> Crowd:
    """Send all prompts at once, greedy, `tokens` each whatever the model thinks of it; SystemExit if one fails."""

    async def all_at_once() -> list[Answer]:
        return await asyncio.gather(*(asyncio.wait_for(ask(url, p, tokens), PATIENCE) for p in prompts))

    return Crowd.of(asyncio.run(all_at_once()))


async def ask(url: str, text: str, tokens: int) -> Answer:
    """One streamed completion."""
    wanted = {"prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    wanted["stream_options"] = {"include_usage": True}
    stamps: list[float] = []
    usage: dict[str, Any] = {}
    started = time.perf_counter()
    async for event in _events(url + "/v1/completions", json.dumps(wanted).encode()):
        if any(choice.get("text") for choice in event.get("choices") or []):
            stamps.append(time.perf_counter())
        usage = event.get("usage") or usage
    if not stamps or usage.get("completion_tokens") != tokens:
        raise SystemExit(f"{url}: wanted {tokens} tokens, got {len(stamps)} pieces and the usage {usage}")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Answer(started, stamps, tokens, usage["prompt_tokens"], cached)


async def _events(url: str, body: bytes) -> AsyncIterator[dict[str, Any]]:
    """The server-sent events of a POST."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        head = f"POST {place.path} HTTP/1.1\r\nhost: {place.netloc}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if " 200 " not in answer.splitlines()[0] or "transfer-encoding: chunked" not in answer:
            raise SystemExit(f"{url}: {answer}{(await reader.read(2000)).decode(errors='replace')}")
        buffer = b""
        while size := int(await reader.readline(), 16):
            buffer += (await reader.readexactly(size + 2))[:-2]
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
    finally:
        writer.close()
