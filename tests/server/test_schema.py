"""schemathesis over our own OpenAPI document: whatever is sent, the server never fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from server.live import serving

PROGRAM = shutil.which("schemathesis", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs schemathesis")
def test_nothing_sent_makes_the_server_fail(model: Path, tmp_path: Path) -> None:
    assert PROGRAM is not None
    with serving(model, flags=("--timeout", "10")) as live:
        flags = ["--checks", "not_a_server_error", "--seed", "1", "-n", "10", "--phases", "fuzzing", "--request-timeout", "20"]
        made = subprocess.run(
            [PROGRAM, "run", live.url + "/openapi.json", *flags],
            capture_output=True, text=True, cwd=tmp_path, timeout=500, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout[-3000:]
        assert live.metric("engine_restarts_total") == 0
        assert not [line for line in live.lines if "unexpected error" in line]
