"""`run` and `chat` as a user meets them: streaming, seeds, slash commands, Ctrl-C, and a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_driver import COMMAND, ENVIRONMENT, run, write_model

FAST = ["--backend", "reference", "--seed", "3"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def test_run_answers_and_says_how_fast(model: Path) -> None:
    made = run("run", model, "hello", *FAST, "--max-tokens", "6", "--ignore-eos")
    assert made.code == 0
    assert len(made.out) > 1
    assert "prefill 23 tokens" in made.err
    assert "no chat template" in made.err and "'chatml'" in made.err and "--raw" in made.err
    assert "decode" in made.err
    assert "cut at --max-tokens" in made.err
    again = json.loads(run("run", model, *FAST, "--max-tokens", "6", "--ignore-eos", "--json", stdin="hello").out)
    assert again["text"] + "\n" == made.out
    assert len(again["tokens"]) == 6
    assert again["finish"] == "length"
    other = run("run", model, "hello", "--backend", "reference", "--seed", "4", "--max-tokens", "6", "--ignore-eos")
    assert other.out != made.out


def test_guesses_change_no_answer_and_are_told(model: Path) -> None:
    words = ["run", model, "hello " * 20, "--threads", "1", "--seed", "3", "--ignore-eos", "--max-tokens", "40", "--json"]
    plain = json.loads(run(*words, "--drafts", "0").out)
    assert plain["guesses"] == {"made": 0, "right": 0}
    for flags in (), ("--drafts", "2"), ("--draft-model", str(model)):
        made = run(*words, *flags)
        guessed = json.loads(made.out)
        assert (guessed["tokens"], guessed["text"]) == (plain["tokens"], plain["text"])
        assert guessed["guesses"]["made"] >= guessed["guesses"]["right"]
        assert f"{guessed['guesses']['right']} of" in made.err or not guessed["guesses"]["made"]
    assert guessed["guesses"]["right"] > 0  # the model guesses for itself


def test_run_stops_at_a_stop_string(model: Path) -> None:
    words = ["run", model, "hello", *FAST, "--ignore-eos", "--max-tokens", "40", "--json"]
    whole = json.loads(run(*words).out)["text"]
    at = next(i for i, character in enumerate(whole) if i > 2 and character.isprintable() and character != "\ufffd")
    cut = json.loads(run(*words, "--stop", whole[at]).out)
    assert cut["text"] == whole[: whole.index(whole[at])]
    assert cut["finish"] == "stop"


def test_run_uses_templates_as_told(model: Path) -> None:
    def tokens(*options: str) -> int:
        made = run("run", model, "xyz", *FAST, "--max-tokens", "1", "--json", *options)
        return int(json.loads(made.out)["prefill"]["tokens"])

    assert tokens("--raw") == 3
    assert "no chat template" not in run("run", model, "xyz", *FAST, "--max-tokens", "1", "--raw").err
    chatml = tokens()
    assert tokens("--template", "chatml") == chatml
    assert tokens("--system", "xyz") == chatml + len("system") + len("xyz") + 2 + 2
    assert tokens("--template", "plain") == 1 + len("User: xyz\nAssistant:")


def test_chat_commands(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    said = [
        "/help",
        "hi \\",
        "there",
        "/set temperature 0",
        "/set max-tokens 3",
        "/set seed x",
        "/set ignore-eos maybe",
        "/set dry-breakers a b",
        "/set logit-bias 5:-1 8:2",
        "/set logit-bias 5",
        "/set",
        "/set top_p",
        f"/save {tmp_path}/none/talk.json",
        "/system be kind",
    ]
    said += ["again", f"/save {saved}", f"/save {__file__}", "/frob", "/reset", f"/save {saved}", "/exit", "not read"]
    made = run("chat", model, *FAST, "--max-tokens", "2", "--ignore-eos", stdin="\n".join(said) + "\n")
    assert made.code == 0
    for told in ("Alt-Enter", "temperature is 0.0", "max_tokens is 3", "seed cannot be 'x'", "top_k 40",
                 "ignore_eos cannot be 'maybe'", "dry_breakers is ('a', 'b')", "logit_bias is ((5, -1.0), (8, 2.0))",
                 "logit_bias cannot be '5'", "is there already",
                 "there is no command /frob", "forgotten", "top_p is 0.95",
                 "none/talk.json: No such file or directory\n", "system message set"):  # fmt: skip
        assert told in made.err
    assert made.err.count("prefill") == 2
    assert json.loads(saved.read_text())["messages"] == [{"role": "system", "content": "be kind"}]


def test_chat_keeps_the_conversation(model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    run("chat", model, *FAST, "--max-tokens", "2", stdin=f"one\\\ntwo\nthree\n/save {saved}\n")
    messages = json.loads(saved.read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[0]["content"] == "one\ntwo"


def test_chat_goes_on_after_a_failure(model: Path) -> None:
    made = run("chat", model, *FAST, "--ctx", "512", "--max-tokens", "2", stdin="x" * 600 + "\nhi\n")
    assert made.code == 0
    assert "do not fit in the context" in made.err
    assert made.err.count("prefill") == 1


def interrupted(words: list[object], times: int) -> tuple[int, str, str]:
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.read(1)  # the answer has begun
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, (first + out).decode("utf-8", "replace"), err.decode()


def test_ctrl_c_stops_the_answer(model: Path) -> None:
    code, _, err = interrupted(["run", model, "hi", *FAST, "--ignore-eos", "--max-tokens", "100000"], 1)
    assert code == 130
    assert err.rstrip().endswith("interrupted")
    assert "Traceback" not in err


def test_ctrl_c_stops_the_reading_of_a_long_prompt(model: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt").write_text("ab" * 25000)  # minutes for the reference
    words = [*COMMAND, "run", str(model), "--backend", "reference", "--chunk", "32", "--ctx", "60000"]
    with (tmp_path / "prompt").open() as prompt, subprocess.Popen(
        words, stdin=prompt, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            assert b"trained for" in process.stderr.readline()  # it is loaded
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert err.rstrip().endswith(b"interrupted")


class Terminal:
    """The command on a pseudo-terminal."""

    def __init__(self, *words: object) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(COMMAND[0], [*COMMAND, *map(str, words)], ENVIRONMENT | {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"})
        self.text = ""
        self.at = 0

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Read until `text` has come after what was waited for last."""
        end = time.monotonic() + seconds
        while (found := self.text.find(text, self.at)) < 0 and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.5)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    break
        assert found >= 0, (text, self.text[self.at :][-2000:])
        self.at = found + len(text)

    def leave(self) -> int:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        pytest.fail("the command did not leave: " + self.text[-500:])


def test_chat_on_a_terminal(model: Path) -> None:
    terminal = Terminal("chat", model, *FAST, "--ignore-eos", "--max-tokens", "300")
    terminal.wait_for("›")
    terminal.type("hello\r")
    terminal.wait_for("decode")
    terminal.wait_for("›")
    terminal.type("/set max_tokens 400\r")
    terminal.wait_for("max_tokens is 400")
    terminal.type("/help\r")
    terminal.wait_for("/system")
    terminal.wait_for("›")
    terminal.type("\x03")
    terminal.wait_for("Ctrl-C once more")
    terminal.wait_for("›")
    terminal.type("\x03")
    assert terminal.leave() == 0
    assert "Traceback" not in terminal.text


def test_ctrl_c_in_chat_stops_the_answer_and_not_the_chat(model: Path) -> None:
    terminal = Terminal("chat", model, *FAST, "--ignore-eos")
    terminal.wait_for("›")
    terminal.type("hello\r")
    terminal.wait_for("\x1b[?2004l")  # the line editor has given the terminal back
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.wait_for("interrupted")
    terminal.wait_for("›")
    terminal.type("/exit\r")
    assert terminal.leave() == 0
