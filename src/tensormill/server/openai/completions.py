"""`/v1/completions`: raw prompts (text or ids, one or a list), echo, fill in the middle; chunks and whole answers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tensormill.bounds import MOST_PROMPTS
from tensormill.engine.messages import Chance, Usage
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import body, sse
from tensormill.server.openai import fields
from tensormill.server.openai.fields import ResponseFormat, Sampling, StreamOptions, checked
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Bit, Choice, Prompt, Values, spent
from tensormill.server.served import ServedModel
from tensormill.server.server import Server

_DEFAULT = 16  # tokens, as OpenAI has it


class CompletionRequest(Sampling, kw_only=True):
    """The body of /v1/completions. Fields after `user` are ours, or other servers'."""

    prompt: str | list[str | int | list[int]] = ""
    model: str = ""
    suffix: str | None = None
    echo: bool | None = None
    n: int | None = None
    best_of: int | None = None
    logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None
    add_special_tokens: bool = True
    cache_salt: str = ""
    priority: int = 0
    timeout: float | None = None


def asks(got: CompletionRequest) -> list[Ask]:
    """An internal request a prompt."""
    prompts = prompts_of(got.prompt, "prompt")
    n = checked("n", got.n if got.n is not None else 1, 1, 128)
    best_of = checked("best_of", got.best_of if got.best_of is not None else n, n, 128)
    if got.stream and best_of > n:
        raise Problem("best_of cannot be streamed", param="best_of")
    if got.echo and got.suffix is not None:
        raise Problem("echo and suffix exclude each other", param="echo")
    return [
        Ask(
            model=got.model,
            prompt=prompt,
            suffix=got.suffix,
            add_special=got.add_special_tokens,
            sampling={"max_tokens": _DEFAULT, **got.sampling()},
            grammar=fields.grammar(got.response_format),
            n=n,
            best_of=best_of if best_of > n else 0,
            logprobs=-1 if got.logprobs is None else checked("logprobs", got.logprobs, 0, 20),
            echo=bool(got.echo),
            priority=got.priority,
            timeout=got.timeout,
        )
        for prompt in prompts
    ]


def prompts_of(given: str | list[Any], param: str, most: int = MOST_PROMPTS) -> list[str | list[int]]:
    """Prompts from any of the four shapes: a text, texts, ids, lists of ids."""
    if isinstance(given, str):
        return [given]
    if given and all(isinstance(x, int) for x in given):
        return [given]
    if not given or len(given) > most or len({type(x) for x in given}) > 1:
        raise Problem(f"{param} must be a text, token ids, or a list of 1 to {most} of one of them", param=param)
    return given


class CompletionWriter:
    """Writes text completions."""

    media = "text/event-stream"

    def __init__(self, model: ServedModel, ask: Ask, prompts: list[Prompt], *, include_usage: bool = False) -> None:
        self._model = model
        self._ask = ask
        self._prompts = prompts
        self._include_usage = include_usage
        self._head = {
            "id": f"cmpl-{ask.id}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": ask.model or model.name,
        }
        self._usages: dict[int, Usage] = {}
        self._offsets: dict[int, int] = {}

    def whole(self, choices: list[Choice]) -> Values:
        """A `text_completion`."""
        made = []
        for choice in choices:
            echo, chances = self._echo(choice.index)
            logprobs = self._logprobs(choice.index, [*chances, *choice.chances])
            made.append(
                {"index": choice.index, "text": echo + choice.text, "finish_reason": choice.finish, "logprobs": logprobs}
            )  # fmt: skip
        total = spent({c.index: c.usage for c in choices if c.usage}, self._ask.n)
        return {**self._head, "choices": made, "usage": fields.usage(total), "timings": fields.timings(total)}

    def _echo(self, index: int) -> tuple[str, list[Chance | int]]:
        """The prompt's text, and its chances (of the first token, which has none, only the id)."""
        if not self._ask.echo:
            return "", []
        prompt = self._prompts[index // self._ask.n]
        text = self._ask.prompt if isinstance(self._ask.prompt, str) else None
        if text is None or len(self._prompts) > 1:
            text = self._model.tokenizer.decode(prompt.tokens, special=False)
        return text, [prompt.tokens[0], *prompt.scores] if self._ask.logprobs >= 0 else []

    def _logprobs(self, index: int, chances: list[Chance | int]) -> Values | None:
        if self._ask.logprobs < 0:
            return None
        at = self._offsets.get(index, 0)
        made: Values = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for chance in chances:
            known, token = (chance, chance.token) if isinstance(chance, Chance) else (None, chance)
            text = self._text(token)
            made["tokens"].append(text)
            made["token_logprobs"].append(max(known.logprob, -9999.0) if known else None)
            made["top_logprobs"].append({self._text(t): max(p, -9999.0) for t, p in known.top} if known else None)
            made["text_offset"].append(at)
            at += len(text)
        self._offsets[index] = at
        return made

    def _text(self, token: int) -> str:
        piece = self._model.tokenizer.piece(token)
        try:
            return piece.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{b:02x}" for b in piece)

    def start(self) -> Iterable[bytes]:
        """The prompt, where it is to be echoed."""
        for i in range(len(self._prompts) * self._ask.n if self._ask.echo else 0):
            text, chances = self._echo(i)
            yield self._chunk(i, text, self._logprobs(i, chances))

    def bit(self, bit: Bit) -> Iterable[bytes]:
        """A chunk a bit."""
        if bit.usage:
            self._usages[bit.choice] = bit.usage
        if bit.text or bit.chances or bit.finish:
            yield self._chunk(bit.choice, bit.text, self._logprobs(bit.choice, [*bit.chances]), bit.finish)

    def _chunk(self, index: int, text: str, logprobs: Values | None, finish: str | None = None) -> bytes:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return sse({**self._head, "choices": [choice], **({"usage": None} if self._include_usage else {})})

    def end(self) -> Iterable[bytes]:
        """Usage, if wanted, and the end mark."""
        if self._include_usage:
            total = spent(self._usages, self._ask.n)
            yield sse({**self._head, "choices": [], "usage": fields.usage(total), "timings": fields.timings(total)})
        yield b"data: [DONE]\n\n"

    def failed(self, problem: Problem) -> Iterable[bytes]:
        """The error as an event."""
        yield sse(fields.error(problem))


async def complete(server: Server, request: Request) -> Response:
    """Continue prompts."""
    got = await body(request, CompletionRequest, server.config.max_body)
    usage = bool(got.stream_options and got.stream_options.include_usage)
    return await server.answer(
        request,
        asks(got),
        lambda model, ask, prompts: CompletionWriter(model, ask, prompts, include_usage=usage),
        streamed=bool(got.stream),
        salt=got.cache_salt,
    )


ENDPOINTS = (Endpoint("POST", "/v1/completions", complete, "Continue prompts", CompletionRequest, streams=True),)
