"""Every curl line of docs/server.md, run against the demo model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.real import path_of
from server.live import Live, serving
from tensormill.server.app import DIALECTS

MODEL = path_of("smollm2-135m")
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text("utf-8")
COMMANDS = re.findall(r"^(?:curl |id=).*?(?:\n(?=curl|```))", TEXT, re.M | re.S)
CALL = re.compile(r"curl -sN? ?(?:-X (\w+) )?http://127\.0\.0\.1:8080(/[^\s?]*)(.*?)(?=curl|\Z)", re.S)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not MODEL.exists() or not shutil.which("curl"), reason="needs curl and `make models`"),
]


@pytest.fixture(scope="module")
def demo() -> Iterator[Live]:
    with serving(MODEL, flags=("--threads", "2", "--ctx", "2048", "--alias", "demo")) as live:
        yield live


def test_every_endpoint_has_a_command() -> None:
    used = [(m[1] or ("POST" if "-d" in m[3] else "GET"), m[2]) for c in COMMANDS for m in CALL.finditer(c)]
    for dialect in DIALECTS:
        for endpoint in dialect.endpoints:
            path = re.compile(re.sub(r"\{.*?\}", "[^/]+", endpoint.path))
            assert any(method == endpoint.method and path.fullmatch(url) for method, url in used), endpoint.path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split("8080")[1].split()[0])
def test_a_command(demo: Live, command: str) -> None:
    status = command.partition("# ")[2].strip()
    command = command.replace("curl -s", "curl --fail-with-body --max-time 100 -s").replace("http://127.0.0.1:8080", demo.url)
    made = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (made.returncode != 0) is bool(status), made.stdout + made.stderr
    if "-sN" in command:
        assert "data: " in made.stdout
    elif "/metrics" not in command:
        found = list(values(made.stdout))
        assert found and any(v.get("error") for v in found) is bool(status)


def values(text: str) -> Iterator[dict[str, Any]]:
    """JSON values one behind the other."""
    at = 0
    while at < len(text):
        value, at = json.JSONDecoder().raw_decode(text, at)
        yield value
        at += len(text[at:]) - len(text[at:].lstrip())
