"""docs/cli.md holds the help of every command; run as a program (PYTHONPATH=tests:tests/unit) this writes it anew."""

from __future__ import annotations

import sys
from pathlib import Path

from cli_driver import run

from tensormill.cli.main import VERBS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def text() -> str:
    parts = ["# The command line\n\nMade from `--help`; do not edit: `python tests/unit/test_cli_docs.py` writes it.\n"]
    for verb in ("", *VERBS):
        made = run(*([verb] if verb else []), "--help")
        assert made.code == 0, made.err  # or half a document would be written
        lines = "\n".join(line.rstrip() for line in made.out.strip().splitlines())
        parts.append(f"## tensormill {verb}".rstrip() + f"\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def test_the_document_is_what_the_commands_say() -> None:
    assert DOCUMENT.read_text("utf-8") == text(), "run: PYTHONPATH=tests:tests/unit python tests/unit/test_cli_docs.py"


if __name__ == "__main__":
    DOCUMENT.write_text(text(), "utf-8")
    print(DOCUMENT, file=sys.stderr)
