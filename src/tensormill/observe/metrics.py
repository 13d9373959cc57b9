"""Prometheus metrics with the meanings that vLLM gave them, under `tensormill:`. Fed by the event loop, never by a step.

One label, the model's name. `engine_*`, `kv_pages_held`, `kv_disk_*` and `server_tasks` are ours: they show what is freed, and
that all is.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
_WHOLE = (0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
_TOKENS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.running = self._gauge("num_requests_running", "Sequences that are computed now")
        self.waiting = self._gauge("num_requests_waiting", "Sequences that wait for room")
        self.kv_usage = self._gauge("kv_cache_usage_perc", "Share of the pages in use or remembered, 0 to 1")
        self.held = self._gauge("kv_pages_held", "Pages that requests hold now")
        self.disk = self._gauge("kv_disk_bytes", "Bytes of keys, values and states in files (--kv-disk)")
        self.up = self._gauge("engine_up", "1 while the model is loaded")
        self.tasks = Gauge("tensormill:server_tasks", "Tasks of the server's event loop", registry=self.registry)
        self.steps = self._counter("engine_steps", "Steps computed")
        self.computed = self._counter("engine_computed_tokens", "Tokens computed, prompts' and answers'")
        self.preempted = self._counter("num_preemptions", "Sequences that lost their pages to others and were begun again")
        self.restarts = self._counter("engine_restarts", "Times the engine process died and was started again")
        self.disk_failures = self._counter("kv_disk_write_failures", "Files of keys and values that could not be written")
        self.queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache")
        self.hits = self._counter("prefix_cache_hits", "Prompt tokens that were there")
        self.prompt = self._counter("prompt_tokens", "Prompt tokens of finished requests")
        self.generated = self._counter("generation_tokens", "Tokens generated")
        self.drafted = self._counter("spec_decode_num_draft_tokens", "Tokens guessed by speculation")
        self.accepted = self._counter("spec_decode_num_accepted_tokens", "Guesses that were right")
        self.success = self._counter("request_success", "Sequences that finished, by reason", "finished_reason")
        self.failed = self._counter("request_failure", "Requests refused or failed, by kind", "kind")
        self.first = self._histogram("time_to_first_token_seconds", "From arrival to the first token", _FIRST)
        self.between = self._histogram("inter_token_latency_seconds", "Between two tokens of a sequence", _BETWEEN)
        self.whole = self._histogram("e2e_request_latency_seconds", "From arrival to the last token", _WHOLE)
        self.queued = self._histogram("request_queue_time_seconds", "Waiting before the first step", _WHOLE)
        self.prefill = self._histogram("request_prefill_time_seconds", "From the first step to the first token", _WHOLE)
        self.decode = self._histogram("request_decode_time_seconds", "From the first token to the last", _WHOLE)
        self.prompts = self._histogram("request_prompt_tokens", "Prompt tokens a request", _TOKENS)
        self.answers = self._histogram("request_generation_tokens", "Generated tokens a sequence", _TOKENS)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"tensormill:{name}", about, ["model_name"], registry=self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"tensormill:{name}", about, ["model_name", *labels], registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"tensormill:{name}", about, ["model_name"], registry=self.registry, buckets=buckets)
