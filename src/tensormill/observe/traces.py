"""OpenTelemetry: a span for each request, inside it when each answer waited, was read and was written. Off unless asked for.

The SDK is an extra (`tensormill[otel]`), imported only when traces are sent. Prompts and answers are in no span. Names of
attributes are those of OpenTelemetry's conventions for generative models, where they have one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from tensormill.errors import RequestError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATH = "/v1/traces"
Attributes = Mapping[str, str | int | float | list[str]]


class Traces:
    """Where traces go; without a provider, nowhere."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer: Tracer | None = provider.get_tracer("tensormill") if provider else None

    @classmethod
    def to(cls, endpoint: str = "") -> Traces:
        """Traces sent by OTLP over HTTP to an address, else to that of OpenTelemetry's environment variables, if there is one.

        RequestError if the extra is not installed.
        """
        if not endpoint and not any(os.environ.get(name) for name in _VARIABLES):
            return cls()
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise RequestError("sending traces (--otlp-endpoint) needs an extra: pip install 'tensormill[otel]'") from None
        name = os.environ.get("OTEL_SERVICE_NAME", "tensormill")
        provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
        address = endpoint if not endpoint or endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address or None)))
        return cls(provider)

    def request(self, name: str, headers: Mapping[str, str], arrived: float, about: Attributes) -> Trace:
        """A request that arrived then (monotonic seconds), part of the trace that its `traceparent` header names."""
        if self._tracer is None:
            return Trace()
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {key: headers[key] for key in ("traceparent", "tracestate") if key in headers}
        context = TraceContextTextMapPropagator().extract(carrier)
        span = self._tracer.start_span(name, context, SpanKind.SERVER, dict(about), start_time=_unix(arrived))
        return Trace(self._tracer, span, arrived)

    def close(self) -> None:
        """Send what has not been sent."""
        if self._provider is not None:
            self._provider.shutdown()


class Trace:
    """One request; a context that ends its span, and notes what went wrong."""

    def __init__(self, tracer: Tracer | None = None, span: Span | None = None, arrived: float = 0.0) -> None:
        self._tracer, self._span, self._arrived = tracer, span, arrived
        self._sums: dict[str, int] = {}
        self._finishes: list[str] = []

    def answered(
        self, *, finish: str, prompt: int, cached: int, output: int, queued: float, first: float, total: float
    ) -> None:
        """One sequence has ended: tokens, and seconds from when the engine got it to its first step, first token and end."""
        if self._span is None or self._tracer is None:
            return
        from opentelemetry.trace import set_span_in_context

        now = time.monotonic()
        times = {"queue": (0.0, queued), "prefill": (queued, first), "decode": (first, total)}
        for name, (begin, end) in times.items():
            span = self._tracer.start_span(
                name, set_span_in_context(self._span), start_time=_unix(now - total + max(begin, 0.0))
            )  # fmt: skip
            span.end(_unix(now - total + max(end, begin, 0.0)))
        self._finishes.append(finish)
        if not self._sums:
            self._span.set_attribute("gen_ai.latency.time_to_first_token", now - total + first - self._arrived)
            self._span.set_attribute("gen_ai.latency.time_in_queue", max(queued, 0.0))
        tokens = {"input_tokens": prompt, "cache_read.input_tokens": cached, "output_tokens": output}
        for name, n in tokens.items():
            self._sums[name] = self._sums.get(name, 0) + n
            self._span.set_attribute(f"gen_ai.usage.{name}", self._sums[name])
        self._span.set_attribute("gen_ai.response.finish_reasons", self._finishes)

    def failed(self, kind: str, message: str) -> None:
        """It failed, if only in the middle of a stream."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR, message))

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.failed(str(getattr(error, "kind", type(error).__name__)), str(error))
        if self._span is not None:
            self._span.end()


def _unix(monotonic: float) -> int:
    """Nanoseconds since 1970 of a moment on the monotonic clock."""
    return time.time_ns() - int((time.monotonic() - monotonic) * 1e9)
