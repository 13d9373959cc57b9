"""Answers internal requests: prepares them off the event loop, runs every choice on the engine, parses what comes.

`stream` gives bits as they come, `whole` waits for all of them. Leaving either cancels what the engine still does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tensormill.engine.messages import Generate, Score, Usage
from tensormill.server.meter import Meter, Watch
from tensormill.server.preparing import prepare
from tensormill.server.problem import Problem
from tensormill.server.process import EngineError
from tensormill.server.reading import Reading
from tensormill.server.request import Ask, Bit, Choice, Prompt
from tensormill.server.served import ServedModel

_KINDS = {"request": "invalid", "engine": "engine", "load": "loading"}
Job = tuple[Ask, Prompt]
threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="prepare")


async def prepared(model: ServedModel, ask: Ask) -> Prompt:
    """Everything that can be refused without computing is refused here."""
    prompt = await asyncio.get_running_loop().run_in_executor(threads, prepare, model, ask)
    await fits(model, len(prompt.tokens), "messages" if ask.messages is not None else "prompt")
    if ask.echo and ask.logprobs >= 0:
        score = Score(f"{ask.id}.score", prompt.tokens, ask.logprobs, ask.caller.key, ask.caller.salt)
        try:
            prompt.scores = (await model.engine.score(score)).chances
        except EngineError as error:
            raise problem_of(error) from error
    return prompt


async def fits(model: ServedModel, n: int, param: str) -> None:
    """Problem unless so many tokens fit in the model's context."""
    try:
        most = (await model.engine.start()).context
    except EngineError as error:
        raise problem_of(error) from error
    if n > most:
        raise Problem(
            f"This model's maximum context length is {most} tokens; the prompt has {n}. "
            "Shorten it, or serve with a larger --ctx.",
            param=param,
            code="context_length_exceeded",
        )
    if not n:
        raise Problem("the prompt has no tokens", param=param)


async def stream(model: ServedModel, jobs: Sequence[Job], meter: Meter) -> AsyncGenerator[Bit, None]:
    """Bits of all choices as they come, numbered through; Problem if one fails, which ends all of them."""
    inbox: asyncio.Queue[Bit | Exception] = asyncio.Queue()
    runs = [(ask, prompt, i) for ask, prompt in jobs for i in range(ask.many)]
    tasks = [asyncio.create_task(_feed(inbox, model, run, n, meter)) for n, run in enumerate(runs)]
    timeout = jobs[0][0].timeout
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    left = len(tasks)
    try:
        while left:
            async with asyncio.timeout_at(deadline):
                bit = await inbox.get()
            if isinstance(bit, EngineError):
                raise problem_of(bit)
            if isinstance(bit, Exception):
                raise bit
            left -= bit.finish is not None
            yield bit
    except TimeoutError:
        raise Problem(f"the answer took longer than {timeout} s", kind="timeout") from None
    finally:
        for task in tasks:
            task.cancel()


async def begun(bits: AsyncGenerator[Bit, None]) -> AsyncGenerator[Bit, None]:
    """The same bits, once the first is there: what an engine refuses has a status of its own only before a stream begins."""
    first = await anext(bits)

    async def all_of_them() -> AsyncGenerator[Bit, None]:
        yield first
        async with contextlib.aclosing(bits):
            async for bit in bits:
                yield bit

    return all_of_them()


async def whole(model: ServedModel, jobs: Sequence[Job], meter: Meter) -> list[Choice]:
    """All of the answer: of each prompt's choices the `n` likeliest, or all where no more were asked for."""
    choices = [Choice(i) for i in range(sum(ask.many for ask, _ in jobs))]
    async with contextlib.aclosing(stream(model, jobs, meter)) as bits:
        async for bit in bits:
            choices[bit.choice].add(bit)
    kept: list[Choice] = []
    for ask, _ in jobs:
        mine, choices = choices[: ask.many], choices[ask.many :]
        kept += sorted(mine, key=_unlikely)[: ask.n] if ask.best_of > ask.n else mine
    return [dataclasses.replace(choice, index=i) for i, choice in enumerate(kept)]


def _unlikely(choice: Choice) -> float:
    return -sum(c.logprob for c in choice.chances) / max(len(choice.chances), 1)


async def _feed(
    inbox: asyncio.Queue[Bit | Exception], model: ServedModel, run: tuple[Ask, Prompt, int], number: int, meter: Meter
) -> None:
    ask, prompt, i = run
    request = _generate(ask, prompt, i, number)
    watch = meter.sequence(model.name, ask)
    try:
        if request.sampling.max_tokens == 0:  # nothing to compute: the prompt alone was asked for
            inbox.put_nowait(Bit(number, [], finish="length", usage=Usage(len(prompt.tokens), 0, 0, 0.0, 0.0, 0.0)))
            return
        await _read(inbox, model, request, Reading(model.format, ask, prompt, number), watch)
    except Exception as error:
        inbox.put_nowait(error)


async def _read(
    inbox: asyncio.Queue[Bit | Exception], model: ServedModel, request: Generate, reading: Reading, watch: Watch
) -> None:
    async with contextlib.aclosing(model.engine.stream(request)) as outputs:
        async for output in outputs:
            watch.output(output)
            inbox.put_nowait(reading.bit(output))


def _generate(ask: Ask, prompt: Prompt, i: int, number: int) -> Generate:
    sampling = prompt.sampling
    if i and sampling.seed is not None:
        sampling = dataclasses.replace(sampling, seed=(sampling.seed + i) % (1 << 64))
    logprobs = max(ask.logprobs, 0) if ask.best_of > ask.n else ask.logprobs
    return Generate(
        f"{ask.id}.{number}", prompt.tokens, sampling, ask.caller.key, ask.caller.salt, ask.priority, logprobs,
        grammar=prompt.grammar, shows=prompt.shows, thinking=prompt.thinking,
    )  # fmt: skip


def problem_of(error: EngineError) -> Problem:
    """What a client is told when an engine failed."""
    return Problem(str(error), kind=_KINDS.get(error.kind, "engine"), retry=1 if error.kind != "request" else 0)
