"""Speed as a ratio: TensorMill against llama.cpp on the same files, in alternating runs, beside the memory's limit.

    python benchmarks/vs_llama_cpp.py [MODEL.gguf ...] [--threads 2] [--rounds 5] [--json]

Each round runs both programs once (llama.cpp with flash attention off and on; its better setting counts), in an order
that turns every round; the ratio is the median of the rounds' ratios. Share of the limit: bytes of weights read per
token × tokens per second ÷ the rate at which as many threads read a block of that size (machine.read_bandwidth).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import llama_cpp_build
import machine

ROOT = Path(__file__).resolve().parent.parent
DISTURBED = 0.10  # CPU pressure during a run above which its round is suspect
Rates = dict[str, float]  # "pp512" -> tokens per second


@dataclass
class Result:
    """One model's runs: a list entry a round, in tokens per second."""

    model: str
    weight_bytes: int  # read per token
    bandwidth: float  # bytes per second, reading a block of that size
    ours: list[Rates] = field(default_factory=list)
    theirs: dict[str, list[Rates]] = field(default_factory=lambda: {"fa off": [], "fa on": []})
    pressure: list[float | None] = field(default_factory=list)

    def tests(self) -> list[str]:
        """Names of the tests that were run."""
        return list((self.ours or self.theirs["fa off"])[0])

    def best(self, test: str) -> str:
        """The flash-attention setting with which llama.cpp is faster in this test."""
        return max(self.theirs, key=lambda fa: median(rates[test] for rates in self.theirs[fa]))

    def row(self, test: str) -> dict[str, Any]:
        """One line of the report; ratios and limit shares are None where they mean nothing."""
        fa = self.best(test)
        theirs = [rates[test] for rates in self.theirs[fa]]
        ours = [rates[test] for rates in self.ours]
        ratios = [a / b for a, b in zip(ours, theirs, strict=False)]
        limit = self.bandwidth / self.weight_bytes if test.startswith("tg") else None
        return {
            "test": test,
            "tensormill": median(ours) if ours else None,
            "llama.cpp": median(theirs),
            "llama.cpp setting": fa,
            "ratio": median(ratios) if ratios else None,
            "ratio range": [min(ratios), max(ratios)] if ratios else None,
            "limit": limit,
            "tensormill of limit": median(ours) / limit if ours and limit else None,
            "llama.cpp of limit": median(theirs) / limit if limit else None,
        }


def ours(model: Path, chosen: argparse.Namespace) -> Rates:
    """One `tensormill bench`: the contract is a JSON list of {test, tokens_per_second: [...]}."""
    command = [*chosen.tensormill, "bench", str(model), "-p", str(chosen.prompt), "-n", str(chosen.generate)]
    command += ["--threads", str(chosen.threads), "-r", "1", "--json"]
    return {entry["test"]: median(entry["tokens_per_second"]) for entry in _json(command)}


def theirs(model: Path, chosen: argparse.Namespace, bench: Path) -> dict[str, Rates]:
    """One llama-bench with both flash-attention settings."""
    command = [str(bench), "-m", str(model), "-p", str(chosen.prompt), "-n", str(chosen.generate)]
    command += ["-t", str(chosen.threads), "-r", "1", "-fa", "0,1", "-o", "json"]
    rates: dict[str, Rates] = {"fa off": {}, "fa on": {}}
    for entry in _json(command):
        test = f"pp{entry['n_prompt']}" if entry["n_prompt"] else f"tg{entry['n_gen']}"
        rates["fa on" if _is_on(entry["flash_attn"]) else "fa off"][test] = entry["avg_ts"]
    return rates


def _is_on(value: object) -> bool:
    return str(value).lower() in ("1", "true", "on")  # spelled differently from version to version


def _json(command: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        died = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        raise SystemExit(f"{' '.join(command)}\nended with {died}:\n{done.stderr[-2000:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def weight_bytes(model: Path) -> int:
    """Bytes of weights that decoding one token reads: all but a lone embedding table, of experts only those used."""
    from tensormill.gguf import GGUFFile

    with GGUFFile(model) as file:
        arch = file.metadata.str("general.architecture")
        experts = file.metadata.int(f"{arch}.expert_count", default=0)
        used = file.metadata.int(f"{arch}.expert_used_count", default=0) / experts if experts else 1.0
        tied = "output.weight" not in file.tensors
        read = (
            info.nbytes * (used if "_exps." in name else 1.0)
            for name, info in file.tensors.items()
            if tied or name != "token_embd.weight"
        )
        return int(sum(read))


def measure(model: Path, chosen: argparse.Namespace, baseline: llama_cpp_build.Baseline) -> Result:
    """All rounds of one model."""
    read = weight_bytes(model)
    result = Result(model.stem, read, machine.read_bandwidth(read, chosen.threads))
    for round_ in range(chosen.rounds):
        if not machine.wait_until_quiet(chosen.patience):
            _say(f"{model.stem}: another process keeps the CPU busy; measuring all the same")
        pressure = machine.Pressure()
        turns = ["ours", "theirs"][:: 1 if round_ % 2 else -1]
        for turn in turns:
            if turn == "theirs":
                for fa, rates in theirs(model, chosen, baseline.bench).items():
                    result.theirs[fa].append(rates)
            elif not chosen.baseline_only:
                result.ours.append(ours(model, chosen))
        result.pressure.append(pressure.share())
        _say(f"{model.stem}: round {round_ + 1} of {chosen.rounds}")
    if disturbed := sum((share or 0) > DISTURBED for share in result.pressure):
        _say(f"{model.stem}: another process was busy in {disturbed} of {chosen.rounds} rounds; do not quote these")
    return result


def default_models(baseline: llama_cpp_build.Baseline) -> list[Path]:
    """SmolLM2 in Q4_1 and Q8_0, and Qwen2.5-Coder-1.5B in Q4_K_M: small and large, three kinds of block."""
    fetch = [sys.executable, str(ROOT / "tests" / "get_models.py"), "smollm2", "qwen-coder-1.5b"]
    smollm2, qwen = map(Path, subprocess.run(fetch, check=True, stdout=subprocess.PIPE, text=True).stdout.split())
    return [smollm2, llama_cpp_build.requantised(baseline, smollm2, "Q8_0"), qwen]


def table(results: list[Result]) -> str:
    """The report for people."""
    head = ("model", "test", "tensormill", "llama.cpp", "setting", "ratio", "range", "limit", "ours", "theirs")
    lines = [head]
    for result in results:
        for row in map(result.row, result.tests()):
            span = row["ratio range"]
            cells = (
                result.model,
                row["test"],
                _number(row["tensormill"], ".1f"),
                _number(row["llama.cpp"], ".1f"),
                row["llama.cpp setting"],
                _number(row["ratio"], ".2f"),
                f"{span[0]:.2f}–{span[1]:.2f}" if span else "–",
                _number(row["limit"], ".1f"),
                _number(row["tensormill of limit"], ".0%"),
                _number(row["llama.cpp of limit"], ".0%"),
            )
            lines.append(cells)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="default: three models of PyPI packages")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt tokens (default: %(default)s)")
    parser.add_argument("-n", "--generate", type=int, default=128, help="generated tokens (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet CPU (%(default)s)")
    parser.add_argument("--baseline-only", action="store_true", help="run only llama.cpp")
    parser.add_argument("--require", type=float, metavar="RATIO", help="exit with 1 if a ratio is below this")
    parser.add_argument("--json", action="store_true", help="every number, on stdout")
    program = str(Path(sys.executable).parent / "tensormill")
    parser.add_argument("--tensormill", nargs=1, default=[program], help="the program (default: %(default)s)")
    return parser.parse_args()


def main() -> int:
    """Command line."""
    chosen = _arguments()
    baseline = llama_cpp_build.build()
    results = [measure(model, chosen, baseline) for model in chosen.models or default_models(baseline)]
    rows = {result.model: [result.row(test) for test in result.tests()] for result in results}
    about = {**machine.about(), "threads": chosen.threads, "rounds": chosen.rounds}
    opponent = {"llama-cpp-python": baseline.version, "compiler": baseline.compiler}
    if chosen.json:
        runs = [asdict(result) for result in results]
        print(json.dumps({"machine": about, "llama.cpp": opponent, "rows": rows, "runs": runs}, indent=2))
    else:
        print(table(results))
        print(f"\n{about['cpu']}, {about['threads']} threads, median of {about['rounds']} alternating rounds, tokens/s.")
        print(f"llama.cpp of llama-cpp-python {baseline.version}, {baseline.compiler}, native.")
        for result in results:
            megabytes, rate = result.weight_bytes / 1e6, result.bandwidth / 1e9
            print(f"limit of {result.model}: {megabytes:.0f} MB of weights a token, read at {rate:.1f} GB/s.")
    ratios = [row["ratio"] for of in rows.values() for row in of if row["ratio"] is not None]
    return int(chosen.require is not None and any(ratio < chosen.require for ratio in ratios))


if __name__ == "__main__":
    raise SystemExit(main())
