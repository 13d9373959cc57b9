"""Answers internal requests: prepares them off the event loop, runs every choice on the engine, parses what comes.

`stream` gives bits as they come, `whole` waits for all of them. Leaving either cancels what the engine still does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor

from tensormill.chat.parse import Content, Event, OutputParser, ToolCallArguments, ToolCallEnd, ToolCallStart
from tensormill.engine.messages import Generate, Output
from tensormill.server.preparing import prepare
from tensormill.server.problem import Problem
from tensormill.server.process import EngineError
from tensormill.server.request import Ask, Bit, Choice, Prompt
from tensormill.server.served import ServedModel

_KINDS = {"request": "invalid", "engine": "engine", "load": "loading"}
_FINISH = {"context": "length"}
threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="prepare")


async def prepared(model: ServedModel, ask: Ask) -> Prompt:
    """Everything that can be refused without computing is refused here."""
    prompt = await asyncio.get_running_loop().run_in_executor(threads, prepare, model, ask)
    try:
        info = await model.engine.start()
    except EngineError as error:
        raise _problem(error) from error
    n, most = len(prompt.tokens), info.context
    if n > most:
        raise Problem(
            f"This model's maximum context length is {most} tokens; the prompt has {n}. "
            "Shorten it, or serve with a larger --ctx.",
            param="messages" if ask.messages is not None else "prompt",
            code="context_length_exceeded",
        )
    return prompt


async def stream(model: ServedModel, ask: Ask, prompt: Prompt) -> AsyncGenerator[Bit, None]:
    """Bits of all choices as they come; Problem if one fails, which ends all of them."""
    inbox: asyncio.Queue[Bit | Exception] = asyncio.Queue()
    many = max(ask.n, ask.best_of)
    tasks = [asyncio.create_task(_feed(inbox, model, ask, prompt, i)) for i in range(many)]
    try:
        async with asyncio.timeout(ask.timeout):
            left = many
            while left:
                bit = await inbox.get()
                if isinstance(bit, EngineError):
                    raise _problem(bit)
                if isinstance(bit, Exception):
                    raise bit
                left -= bit.finish is not None
                yield bit
    except TimeoutError:
        raise Problem(f"the answer took longer than {ask.timeout} s", kind="timeout") from None
    finally:
        for task in tasks:
            task.cancel()


async def whole(model: ServedModel, ask: Ask, prompt: Prompt) -> list[Choice]:
    """All of the answer: the `n` likeliest choices of those made, in the order in which they were asked for."""
    choices = [Choice(i) for i in range(max(ask.n, ask.best_of))]
    async with contextlib.aclosing(stream(model, ask, prompt)) as bits:
        async for bit in bits:
            choices[bit.choice].add(bit)
    if ask.best_of > ask.n:
        choices = sorted(choices, key=lambda c: -sum(x.logprob for x in c.chances) / max(len(c.chances), 1))[: ask.n]
        for i, choice in enumerate(choices):
            choice.index = i
    return choices


async def _feed(inbox: asyncio.Queue[Bit | Exception], model: ServedModel, ask: Ask, prompt: Prompt, choice: int) -> None:
    reader = _Reader(model, ask, prompt, choice)
    try:
        async with contextlib.aclosing(model.engine.stream(_generate(ask, prompt, choice))) as outputs:
            async for output in outputs:
                inbox.put_nowait(reader.bit(output))
    except Exception as error:
        inbox.put_nowait(error)


def _generate(ask: Ask, prompt: Prompt, choice: int) -> Generate:
    sampling = prompt.sampling
    if choice and sampling.seed is not None:
        sampling = dataclasses.replace(sampling, seed=(sampling.seed + choice) % (1 << 64))
    logprobs = max(ask.logprobs, 0) if ask.best_of > ask.n else ask.logprobs
    return Generate(
        f"{ask.id}.{choice}", prompt.tokens, sampling, ask.caller.key, ask.caller.salt, ask.priority, logprobs,
        grammar=ask.grammar,
    )  # fmt: skip


class _Reader:
    """Outputs of one choice → bits, through the parser of the model's chat format."""

    def __init__(self, model: ServedModel, ask: Ask, prompt: Prompt, choice: int) -> None:
        self._choice = choice
        self._first_only = not ask.parallel_tool_calls
        self._called = False
        self._parser: OutputParser | None = None
        if ask.messages is not None and ask.parse:
            tools = ask.tools if ask.tools and ask.tool_choice != "none" else []
            self._parser = OutputParser(model.format, tools, continues=prompt.text, seed=f"{ask.id}.{choice}")

    def bit(self, output: Output) -> Bit:
        events: list[Event]
        if self._parser is None:
            events = [Content(output.text)] if output.text else []
        else:
            events = self._parser.push(output.text)
            if output.finish:
                events += self._parser.finish()
        if self._first_only:
            events = [e for e in events if not _later(e)]
        self._called |= any(isinstance(e, ToolCallEnd) and not e.broken for e in events)
        finish = output.finish and _FINISH.get(output.finish, output.finish)
        if finish == "stop" and self._called:
            finish = "tool_calls"
        matched = output.matched if isinstance(output.matched, str) else None
        return Bit(self._choice, events, output.text, output.tokens, output.chances, finish, matched, output.usage)


def _later(event: Event) -> bool:
    return isinstance(event, (ToolCallStart, ToolCallArguments, ToolCallEnd)) and event.index > 0


def _problem(error: EngineError) -> Problem:
    return Problem(str(error), kind=_KINDS.get(error.kind, "engine"), retry=1 if error.kind != "request" else 0)
