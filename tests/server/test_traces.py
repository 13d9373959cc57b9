"""Traces: what a receiver of OTLP gets from a live server."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.live import serving
from tensormill.errors import RequestError
from tensormill.observe.traces import Traces

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ASK = {"messages": [{"role": "user", "content": "a secret"}], "temperature": 0}


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """An address, and the spans that came there."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            sent = trace_service.ExportTraceServiceRequest()
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            sent.ParseFromString(body)
            assert b"secret" not in body
            spans.extend(s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", spans
    server.shutdown()


def values(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def test_a_request_is_a_span_with_its_parts(scripted_file: Path, receiver: tuple[str, list[Any]]) -> None:
    url, spans = receiver
    with serving(scripted_file, flags=("--otlp-endpoint", url)) as live:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        chat = live.url + "/v1/chat/completions"
        made = httpx.post(chat, json=ASK, headers=headers, timeout=60).json()
        assert made["choices"][0]["finish_reason"] == "stop"
        with httpx.stream("POST", chat, json={**ASK, "stream": True, "n": 2}, timeout=60) as streamed:
            assert "[DONE]" in streamed.read().decode()
        assert httpx.post(chat, json={**ASK, "model": "nothing"}, timeout=60).status_code == 404
    requests = {s.span_id: s for s in spans if s.kind == s.SPAN_KIND_SERVER}
    assert len(requests) == 3  # the server sent them before it ended
    first, second, refused = sorted(requests.values(), key=lambda s: s.start_time_unix_nano)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert first.name == "POST /v1/chat/completions"
    told = values(first)
    usage = made["usage"]
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    length = (first.end_time_unix_nano - first.start_time_unix_nano) / 1e9
    assert 0 < told["gen_ai.latency.time_to_first_token"] < length
    parts = [s for s in spans if s.parent_span_id == first.span_id]
    assert [s.name for s in parts] == ["queue", "prefill", "decode"]
    assert first.start_time_unix_nano <= parts[0].start_time_unix_nano
    for before, after in pairwise(parts):
        assert before.start_time_unix_nano <= before.end_time_unix_nano <= after.start_time_unix_nano + 10**6
    assert parts[-1].end_time_unix_nano <= first.end_time_unix_nano
    assert len([s for s in spans if s.parent_span_id == second.span_id]) == 6
    assert refused.status.code == refused.status.STATUS_CODE_ERROR and values(refused)["error.type"] == "missing"


def test_nothing_is_sent_unless_asked_for(scripted_file: Path, receiver: tuple[str, list[Any]]) -> None:
    _, spans = receiver
    with serving(scripted_file) as live:
        assert httpx.post(live.url + "/v1/chat/completions", json=ASK, timeout=60).status_code == 200
    assert not spans


def test_without_the_extra_the_flag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(RequestError, match=r"tensormill\[otel\]"):
        Traces.to("http://localhost:4318")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    Traces.to().close()
