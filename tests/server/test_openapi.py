"""Whatever is sent within our own OpenAPI document, or close to it, the server never fails: schemathesis against a live one.

Bounded and the same at every run; the slow lane sends ten times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import httpx
import pytest

schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.errors import Unsatisfiable  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402

from server.live import Live, serving  # noqa: E402
from tensormill.server.app import DIALECTS  # noqa: E402
from tensormill.server.openapi import document  # noqa: E402

SCHEMA = schemathesis.openapi.from_dict(document(DIALECTS))
OPERATIONS = {f"{o.method.upper()} {o.path}": o for o in (result.ok() for result in SCHEMA.get_all_operations())}
_MESSAGES = [{"role": "user", "content": "Good day!"}]
GOOD: dict[str, dict[str, Any]] = {
    "POST /v1/chat/completions": {"messages": _MESSAGES, "max_completion_tokens": 5},
    "POST /v1/completions": {"prompt": "Good day!", "max_tokens": 5},
    "POST /v1/responses": {"input": "Good day!", "max_output_tokens": 5},
    "POST /v1/embeddings": {"input": ["Good day!", "Bye."]},
    "POST /v1/rerank": {"query": "day", "documents": ["Good day!", "Bye."]},
    "POST /v1/messages": {"messages": _MESSAGES, "max_tokens": 5},
    "POST /v1/messages/count_tokens": {"messages": _MESSAGES},
    "POST /api/chat": {"messages": _MESSAGES, "options": {"num_predict": 5}},
    "POST /api/generate": {"prompt": "Good day!", "options": {"num_predict": 5}},
    "POST /api/embed": {"input": ["Good day!", "Bye."]},
    "POST /tokenize": {"content": "Good day!"},
    "POST /detokenize": {"tokens": [5, 6, 300]},
    "POST /apply-template": {"messages": _MESSAGES},
}
LIMITS = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.generate]}


@pytest.fixture(scope="module")
def attacked(scripted_file: Path) -> Iterator[Live]:
    """A server whose answers are short, so that valid requests end soon."""
    with serving(scripted_file, flags=("--alias", "actor", "--timeout", "10", "--ctx", "256")) as live:
        yield live
        assert live.metric("engine_restarts_total") == 0
        assert not [line for line in live.lines if "unexpected error" in line or "Traceback" in line]
        live.until("num_requests_running", 0)
        assert live.metric("kv_pages_held") == 0


def fuzz(live: Live, name: str, examples: int) -> list[int]:
    """Send requests for one operation: valid ones, broken ones, and good ones with a field or two of a valid one."""
    statuses: list[int] = []
    operation, good = OPERATIONS[name], GOOD.get(name)
    valid = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    _attack(live, valid, examples, statuses)
    try:
        _attack(live, operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), examples, statuses)
    except (Unsatisfiable, SkipTest):
        assert not name.startswith("POST")  # nothing of a path or a bare GET can be broken
    if good is not None:
        _attack(live, st.builds(mixed, valid, st.just(good), st.integers(0, 1 << 16)), 2 * examples, statuses)
    return statuses


def mixed(case: Any, good: dict[str, Any], which: int) -> Any:
    """A case whose body is a good one but for one or two fields of its own."""
    fields = sorted(case.body) if isinstance(case.body, dict) else []
    case.body = good | {f: case.body[f] for n in (which, which // 64) for f in fields[n % 64 : n % 64 + 1]}
    return case


def _attack(live: Live, strategy: st.SearchStrategy[Any], examples: int, statuses: list[int]) -> None:
    @settings(max_examples=examples, derandomize=True, **LIMITS)
    @given(strategy)
    def attack(case: Any) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = "actor"  # else most requests would end at the name
        answer = case.call(base_url=live.url, timeout=30)
        statuses.append(answer.status_code)
        case.validate_response(answer, checks=[not_a_server_error])

    attack()


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_sent_makes_the_server_fail(attacked: Live, name: str) -> None:
    statuses = fuzz(attacked, name, 3)
    assert name not in GOOD or 200 in statuses, statuses  # some got through to the model
    assert httpx.get(attacked.url + "/health", timeout=30).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_of_all_that_is_sent_does_either(attacked: Live, name: str) -> None:
    assert fuzz(attacked, name, 30)


def test_the_document_names_every_route(attacked: Live) -> None:
    served = httpx.get(attacked.url + "/openapi.json", timeout=30).json()
    assert served == document(DIALECTS)
    for dialect in DIALECTS:
        for endpoint in dialect.endpoints:
            assert f"{endpoint.method} {endpoint.path.replace(':path}', '}')}" in OPERATIONS
