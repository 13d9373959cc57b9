"""Tells the metrics what happens: how engines are, how requests went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tensormill.engine.messages import Output, Stats, Usage
from tensormill.observe.metrics import Metrics
from tensormill.server.request import Ask
from tensormill.server.served import ServedModel

_PATIENCE = 2.0  # seconds to wait for an engine in the middle of a long step


class Meter:
    """One server's metrics, and what is needed to feed them."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._counted: dict[str, tuple[int, int, int, int, int]] = {}  # model → counters as last seen

    async def text(self, models: Sequence[ServedModel]) -> bytes:
        """Everything as of now."""
        for model in models:
            try:
                async with asyncio.timeout(_PATIENCE):
                    stats = await model.engine.probe()
            except TimeoutError:
                stats = model.engine.stats
            self._engine(model, stats)
        self.metrics.tasks.set(len(asyncio.all_tasks()))
        return self.metrics.text()

    def _engine(self, model: ServedModel, stats: Stats) -> None:
        m, name = self.metrics, model.name
        for gauge, value in (
            (m.running, stats.running), (m.waiting, stats.waiting), (m.kv_usage, stats.usage), (m.held, stats.held),
            (m.up, model.engine.loaded), (m.disk, stats.disk_bytes),
        ):  # fmt: skip
            gauge.labels(name).set(value)
        now = (stats.steps, stats.computed, stats.preempted, model.engine.restarts, stats.disk_failures)
        before = self._counted.get(name, (0, 0, 0, 0, 0))
        self._counted[name] = now
        for counter, new, old in zip((m.steps, m.computed, m.preempted, m.restarts, m.disk_failures), now, before, strict=True):
            counter.labels(name).inc(new - old if new >= old else new)  # a new process counts from 0

    def failed(self, model: str, kind: str) -> None:
        """A request was refused or failed."""
        self.metrics.failed.labels(model, kind).inc()

    def sequence(self, model: str, ask: Ask) -> Watch:
        """Watches the outputs of one sequence of a request."""
        return Watch(self.metrics, model, ask)


class Watch:
    """Times one sequence."""

    def __init__(self, metrics: Metrics, model: str, ask: Ask) -> None:
        self._m = metrics
        self._model = model
        self._arrived = ask.arrived
        self._trace = ask.trace
        self._last = 0.0

    def output(self, output: Output) -> None:
        """Count a bit of an answer."""
        if output.tokens:
            self._tokens(len(output.tokens))
        if output.usage:
            self._finished(output.usage, output.finish or "stop")

    def _tokens(self, n: int) -> None:
        now = time.monotonic()
        if self._last:
            each = (now - self._last) / n
            for _ in range(n):
                self._m.between.labels(self._model).observe(each)
        else:
            self._m.first.labels(self._model).observe(now - self._arrived)
        self._last = now
        self._m.generated.labels(self._model).inc(n)

    def _finished(self, usage: Usage, reason: str) -> None:
        m, name = self._m, self._model
        self._trace.answered(
            finish=reason, prompt=usage.prompt, cached=usage.cached, output=usage.output, queued=usage.queued,
            first=usage.first, total=usage.total,
        )  # fmt: skip
        m.success.labels(name, reason).inc()
        m.queries.labels(name).inc(usage.prompt)
        m.hits.labels(name).inc(usage.cached)
        m.prompt.labels(name).inc(usage.prompt)
        m.drafted.labels(name).inc(usage.drafted)
        m.accepted.labels(name).inc(usage.accepted)
        m.whole.labels(name).observe(time.monotonic() - self._arrived)
        m.queued.labels(name).observe(max(usage.queued, 0))
        m.prefill.labels(name).observe(max(usage.first - usage.queued, 0))
        m.decode.labels(name).observe(max(usage.total - usage.first, 0))
        m.prompts.labels(name).observe(usage.prompt)
        m.answers.labels(name).observe(usage.output)
