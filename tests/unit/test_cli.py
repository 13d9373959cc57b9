"""The command line, run for real: help, listings, exit codes, and errors in one line."""

from __future__ import annotations

import json
import re
import resource
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cli_driver import COMMAND, ENVIRONMENT, run, write_model

from tensormill.cli.main import VERBS


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def test_help_is_instant_and_complete() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = []
    for _ in range(3):
        made = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, env=ENVIRONMENT, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        before = after
    assert min(times) < 0.15  # processor time: other processes do not count
    assert all(f"  {verb} " in made.stdout for verb in VERBS)
    assert made.stderr == ""


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from tensormill.cli.main import main; main(['--help'])\n"
        "print({'numpy', 'cyclopts', 'rich', 'jinja2', 'tokenizers', 'prompt_toolkit'} & set(sys.modules), file=sys.stderr)"
    )
    made = subprocess.run([COMMAND[0], "-c", script], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert made.stderr == "set()\n"


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_command(verb: str) -> None:
    made = run(verb, "--help")
    assert made.code == 0
    assert made.out.startswith(f"Usage: tensormill {verb} ")


def test_help_of_a_command_imports_no_arrays() -> None:
    script = (
        "import sys; from tensormill.cli.main import VERBS, main\n"
        "for verb in VERBS: main([verb, '--help'])\n"
        "print({'numpy', 'jinja2', 'tokenizers', 'prompt_toolkit'} & set(sys.modules), file=sys.stderr)"
    )
    made = subprocess.run([COMMAND[0], "-c", script], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert made.stderr == "set()\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["rum"], 2, "did you mean 'run'?"),
        (["zzz"], 2, "there are: run, chat"),
        (["inspect", "--nonsense"], 2, "Unknown option"),
        (["inspect", "absent.gguf"], 2, "there is no file absent.gguf"),
        (["inspect", __file__], 1, "GGUF"),
        (["logits", "MODEL", "--out", "x.npy"], 2, "--tokens 1,2,3"),
        (["logits", "MODEL", "--out", "x.npy", "--tokens", "1,b"], 2, "numbers with commas"),
        (["logits", "MODEL", "--out", "x.npy", "--tokens-file", __file__], 2, "as a .npy file"),
        (["logits", "MODEL", "--out", "/tmp/no/such/folder/x.npy", "--tokens", "1"], 2, "cannot write"),
        (["logits", "MODEL", "--out", "/dev/null", "--tokens", "9999", "--backend", "reference"], 2, "not in the vocabulary"),
        (["run", "MODEL", "hi", "--temperature", "-1"], 2, "temperature must be 0 or more"),
        (["run", "MODEL", "hi", "--temperature", "warm"], 2, "warm"),
        (["run", "MODEL", "hi", "--backend", "abacus"], 2, "abacus"),
        (["run", "MODEL", "why", "is", "it"], 2, "no place for is it; a text with spaces needs quotes"),
        (["run", "MODEL", "hi", "--threads", "-1"], 2, "threads must be between 0 and 1024, not -1"),
        (["run", "MODEL", "hi", "--threads", "100000"], 2, "threads must be"),
        (["run", "MODEL", "hi", "--ctx", "-5"], 2, "ctx must be"),
        (["run", "MODEL", "hi", "--ctx", "99999999999"], 2, "ctx must be"),
        (["run", "MODEL", "hi", "--chunk", "0"], 2, "chunk must be 1 or more"),
        (["run", "MODEL", "hi", "--rows", "0"], 2, "rows must be 1 or more"),
        (["run", "MODEL", "hi", "--sequences", "0"], 2, "sequences must be"),
        (["run", "MODEL", "hi", "--kv-tokens", "-1"], 2, "kv-tokens must be"),
        (["run", "MODEL", "hi", "--drafts", "-1"], 2, "drafts must be"),
        (
            ["logits", "MODEL", "--tokens", "1", "--out", "/dev/null", "--drafts", "2"],
            2,
            "are for answers: run, chat and serve",
        ),
        (["bench", "MODEL", "--draft-model", "MODEL"], 2, "are for answers: run, chat and serve"),
        (["bench", "MODEL", "-p", "99999999999"], 2, "ctx must be"),
        (["logits", "MODEL", "--tokens", "1"], 2, "--out is missing"),
        (["eval", "ppm", "MODEL", "--file", __file__], 2, '"ppl", "kld"'),
        (["trace", "MODEL", "--diff", "x.npz", "--tokens", "1", "--tolerance", "nan"], 2, "tolerance must be 0 or more"),
        (["trace", "MODEL", "--diff", "/dev/null", "--tokens", "1"], 2, "of another kind, or damaged"),
        (["logits", "MODEL", "--out", "/dev/null", "--tokens-file", "/dev/null"], 2, "of another kind, or damaged"),
        (["run", "MODEL", " "], 2, "the prompt is empty"),
        (["run", "MODEL", "hi", "--template", "nope", "--backend", "reference"], 1, "no chat template 'nope'"),
        (["run", "MODEL", "hi" * 500, "--backend", "reference", "--ctx", "512"], 2, "do not fit in the context"),
        (["tokenize", "MODEL", "a", "--file", __file__], 2, "not both"),
        (["tokenize", "MODEL", "a", "--pre", "qwen9"], 1, "qwen9"),
        (["trace", "MODEL", "--diff", "x.npz"], 2, "--tokens 1,2,3"),
        (["trace", "MODEL", "--diff", __file__, "--tokens", "1"], 2, "as an .npz dump"),
        (["trace", "MODEL", "--dump", "/tmp/no/such/folder/x.npz", "--tokens", "1"], 1, "No such file"),
        (["bench", "MODEL", "-p", "0", "-n", "0"], 2, "-p or -n above 0"),
        (["inspect", "MODEL", "--key", "general.nam"], 2, "did you mean general.name"),
    ],
)
def test_errors_are_told_in_words(model: Path, words: list[str], code: int, told: str) -> None:
    made = run(*(model if word == "MODEL" else word for word in words))
    assert told in made.err
    assert made.code == code
    assert "Traceback" not in made.err
    assert made.out == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize("words", [["tokenize", "MODEL", "hé"], ["run", "MODEL", "--backend", "reference"], ["--version"]])
def test_closed_streams_are_no_crash(model: Path, words: list[str], closed: str) -> None:
    command = shlex.join([*COMMAND, *(str(model) if word == "MODEL" else word for word in words)])
    made = subprocess.run(
        f"{command} {closed}", shell=True, capture_output=True, text=True, env=ENVIRONMENT, input="", check=False
    )
    assert made.returncode == (2 if words[0] == "run" else 0)
    assert "Traceback" not in made.stderr


def test_what_a_terminal_cannot_show_is_escaped(model: Path) -> None:
    environment = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    command = [*COMMAND, "inspect", str(model), "--key", "tokenizer.ggml.merges"]
    made = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert made.returncode == 0
    assert "\\u0120 a" in made.stdout


def test_a_full_disk_is_told_in_words(model: Path) -> None:
    made = subprocess.run(
        f"{shlex.join([*COMMAND, 'tokenize', str(model), 'hi'])} >/dev/full", shell=True, capture_output=True, text=True,
        env=ENVIRONMENT, check=False,
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (1, "tensormill: No space left on device\n")


def test_a_context_beyond_the_trained_one_is_told(model: Path) -> None:
    options = ["--backend", "reference", "--max-tokens", "1"]
    assert "trained for 8192 tokens" in run("run", model, "hi", *options, "--ctx", "8193").err
    assert "trained" not in run("run", model, "hi", *options, "--ctx", "8192").err


def test_debug_shows_the_traceback() -> None:
    made = run("inspect", "absent.gguf", "--debug")
    assert made.code != 0
    assert "Traceback" in made.err
    assert "there is no file absent.gguf" in made.err


def test_a_mistyped_file_is_no_prompt(tmp_path: Path) -> None:
    for name in ("no.gguff", "no.gguf", "./no", "~/no.gguf"):
        made = run("run", name)
        assert (made.code, made.out) == (2, "") and f"there is no file {name}" in made.err
    made = run("run", tmp_path)
    assert made.code == 2 and "is a folder" in made.err
    assert run("serve", tmp_path).code == 2
    made = run("serve", "--api-key-file", tmp_path / "none", "--no-preload")
    assert made.code != 0 and f"--api-key-file cannot be read: {tmp_path / 'none'}: No such file" in made.err


def test_the_demo_model_is_named_when_absent(tmp_path: Path) -> None:
    made = run("run", "hello", home=tmp_path)
    assert made.code == 1
    assert "`make run` in a checkout fetches it" in made.err


def test_version() -> None:
    assert run("--version").out.strip().count(".") == 2


def test_inspect(model: Path) -> None:
    text = run("inspect", model).out
    assert "general.name" in text
    assert "string[261]: ['Ā'" in text
    assert "blk.1.ffn_down.weight" in text
    assert "blk.1" not in run("inspect", model, "--no-tensors").out
    listed = json.loads(run("inspect", model, "--json").out)
    assert listed["metadata"]["llama.block_count"] == 2
    assert listed["tensors"][0]["name"] == "token_embd.weight"
    assert listed["tensors"][0]["shape"] == [261, 64]
    assert sum(entry["bytes"] for entry in listed["types"]) == sum(tensor["bytes"] for tensor in listed["tensors"])
    assert run("inspect", model, "--key", "general.name").out == "tiny\n"
    assert json.loads(run("inspect", model, "--key", "llama.block_count").out) == 2


def test_inspect_shows_control_characters_and_never_sends_them(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", general__author="\x1b]0;title\x07\n")
    assert "\\x1b]0;title\\x07\\n" in run("inspect", model).out
    assert "\x1b" not in run("inspect", model).out


def test_inspect_into_a_closed_pipe(model: Path) -> None:
    command = f"{COMMAND[0]} -m tensormill.cli.main inspect {model} | head -n 1"
    made = subprocess.run(command, shell=True, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert made.stderr == ""
    assert made.stdout.count("\n") == 1


def test_tokenize(model: Path, tmp_path: Path) -> None:
    assert run("tokenize", model, "hé a<|im_end|>", "--ids").out == "104 195 169 256 260\n"
    assert "260" not in run("tokenize", model, "<|im_end|>", "--no-special", "--ids").out
    listed = json.loads(run("tokenize", model, "hé", "--json").out)
    assert listed == [{"id": 104, "text": "h"}, {"id": 195, "text": "\\xc3"}, {"id": 169, "text": "\\xa9"}]
    (tmp_path / "f.txt").write_bytes(b"the\r\n")
    from_file = run("tokenize", model, "--file", tmp_path / "f.txt", "--ids")
    assert from_file.out == run("tokenize", model, "--ids", stdin="the\r\n").out == "116 257 13 10\n"
    (tmp_path / "f.txt").write_bytes(b"ab\xff")
    assert "is not UTF-8: byte 2 is 0xff" in run("tokenize", model, "--file", tmp_path / "f.txt").err


def test_logits(model: Path, tmp_path: Path) -> None:
    options = ["--backend", "reference", "--kv-type", "f32"]
    made = run("logits", model, "--tokens", "1,2,3,4,5", "--out", tmp_path / "a.npy", *options)
    assert (made.code, made.out) == (0, "")
    np.save(tmp_path / "tokens.npy", np.arange(1, 6, dtype=np.int32))
    files = ["--tokens-file", tmp_path / "tokens.npy"]
    run("logits", model, *files, "--out", tmp_path / "b.npy", "--chunk", "2", *options)
    whole, chunked = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    assert whole.dtype == np.float32
    assert whole.shape == (5, 261)
    assert np.abs(whole - chunked).max() < 1e-4 * np.ptp(whole)


def test_trace(model: Path, tmp_path: Path) -> None:
    text = run("trace", model).out
    assert "block 0–1: 2 equal blocks" in text
    assert "outputs: logits = output [R, 261]" in text
    ops = json.loads(run("trace", model, "--json").out)["main"]["ops"]
    assert {"embed", "rms_norm", "linear", "attention"} <= {op["kind"] for op in ops}
    assert run("trace", model, "--fused", "--backend", "reference").code == 0
    assert "there is no backend" in run("trace", model, "--fused", "--backend", "abacus").err


def test_trace_names_the_first_value_that_departs(model: Path, tmp_path: Path) -> None:
    dump = tmp_path / "dump.npz"
    assert run("trace", model, "--tokens", "5,6,7", "--dump", dump).code == 0
    same = run("trace", model, "--tokens", "5,6,7", "--diff", dump)
    assert same.code == 0
    assert same.out.startswith("no value departs")
    listed = json.loads(run("trace", model, "--tokens", "5,6,7", "--diff", dump, "--json").out)
    assert listed["departed"] is None
    assert listed["values"]["output"] == {"nearest": "output", "distance": 0.0}
    values = dict(np.load(dump))
    wrong = [name for name in values if name.startswith("blk.1.") and name.split(".")[2] not in ("attn_norm", "attn_q")]
    for name in [*wrong, "gather_rows", "logits", "hidden", "output_norm", *(n for n in values if n.startswith("output"))]:
        values[name] = values[name] + 1
    np.savez(dump, **values)
    other = run("trace", model, "--tokens", "5,6,7", "--diff", dump)
    assert other.code == 1
    assert re.match(r"blk\.1\.\S+ is the first value that departs", other.out)
    nodes = {f"{i:05}|{_node(name)}|OP": value for i, (name, value) in enumerate(np.load(dump).items())}
    np.savez(dump, **nodes)
    assert re.match(r"blk\.1\.\S+ is the first", run("trace", model, "--tokens", "5,6,7", "--diff", dump).out)
    assert run("trace", model, "--tokens", "1,2,3,4,5,6,7", "--diff", dump).code == 2


def _node(name: str) -> str:
    """A name as llama.cpp would give it: NAME-BLOCK."""
    block, _, rest = name.removeprefix("blk.").partition(".")
    return f"{rest.replace('#', '_')}-{block}" if name.startswith("blk.") else name


def test_bench(model: Path) -> None:
    options = ["--backend", "reference", "-p", "8", "-n", "3", "-r", "2"]
    entries = json.loads(run("bench", model, *options, "--json").out)
    assert [entry["test"] for entry in entries] == ["pp8", "tg3"]
    assert [(entry["model"], entry["threads"] >= 1) for entry in entries] == [(Path(model).name, True)] * 2
    assert all(len(entry["tokens_per_second"]) == 2 and min(entry["tokens_per_second"]) > 0 for entry in entries)
    deep = json.loads(run("bench", model, *options, "-d", "5", "-b", "3", "--no-warmup", "--json").out)
    assert [entry["test"] for entry in deep] == ["pp8@d5", "tg3x3@d5"]
    assert "tok/s" in run("bench", model, "--backend", "reference", "-p", "0", "-n", "2").out.splitlines()[0]


def test_bench_roofline(model: Path) -> None:
    told = json.loads(run("bench", "--roofline", model, "-p", "8", "-d", "70", "--threads", "2", "--json").out)
    assert [m["threads"] for m in told["machine"]] == [1, 2]
    assert all(m[limit] > 1e8 for m in told["machine"] for limit in ("cached", "dram", "dot", "fma"))
    assert [(s["what"], s["depth"]) for s in told["steps"]] == [("prefill 8", 0), ("decode", 0), ("decode", 70)]
    kernels = {r["kernel"] for s in told["steps"] for r in s["records"]}
    assert {"linears", "attention", "rms_norm", "kv_write"} <= kernels
    assert all(s["floor"] > 0 and 0 < s["seconds"] < 5 for s in told["steps"])
    shallow, deep = told["steps"][1:]
    caches = [sum(r["caches"] for r in s["records"] if r["kernel"] == "attention") for s in (shallow, deep)]
    assert caches[1] > 20 * caches[0] > 0  # it reads 71 tokens, not one
    short = run("bench", "--roofline", model, "-p", "8", "-d", "70", "--ctx", "64")
    assert "by weight type" in short.out and "blk.*.ffn_down" in short.out
    assert "decode at depth 70 is left out" in short.err
    for refused in ([model, "--backend", "reference"], ["nowhere.gguf"]):
        done = run("bench", "--roofline", *refused)
        assert done.code == 2 and done.out == ""  # before anything is measured


def test_doctor() -> None:
    made = run("doctor", "--json")
    found = json.loads(made.out)
    assert found["machine"]["threads"] >= 1
    if found["backends"]["cpu"].endswith("avx512"):
        assert {"avx512_vnni", "avx512vbmi", "gfni"} <= set(found["machine"]["features"])  # it would not be chosen without
    assert found["backends"]["reference"] == "ready"
    assert made.code == (1 if found["problems"] else 0)
    bad = subprocess.run(
        [*COMMAND, "doctor"], capture_output=True, text=True, env=ENVIRONMENT | {"TENSORMILL_ISA": "abacus"}, check=False
    )
    assert "Traceback" not in bad.stderr
    assert bad.returncode == 1
    assert "! the CPU backend" in bad.stdout
    assert run("doctor").out.splitlines()[-1] == (f"! {found['problems'][-1]}" if found["problems"] else "all is well")
