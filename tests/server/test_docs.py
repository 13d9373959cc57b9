"""Every curl line of docs/server.md, run against the demo model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.real import path_of
from server.live import Live, serving

MODEL = path_of("smollm2-135m")
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text("utf-8")
COMMANDS = re.findall(r"^curl .*?(?:\n(?=curl|```))", TEXT, re.M | re.S)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not MODEL.exists() or not shutil.which("curl"), reason="needs curl and `make models`"),
]


@pytest.fixture(scope="module")
def demo() -> Iterator[Live]:
    with serving(MODEL, flags=("--threads", "2", "--ctx", "2048", "--alias", "demo")) as live:
        yield live


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.split("8080")[1].split()[0])
def test_a_command(demo: Live, command: str) -> None:
    command = command.replace("curl -s", "curl --fail-with-body --max-time 100 -s").replace("http://127.0.0.1:8080", demo.url)
    made = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    if "-sN" in command:
        assert "data: " in made.stdout
    elif "/metrics" not in command:
        for value in made.stdout.splitlines() if "/api/" in command else [made.stdout]:
            assert "error" not in {k for k, v in json.loads(value).items() if v}
