"""Quality of quantised runs: how far TensorMill and llama.cpp are from the dequantised model, on the same chunks of a text.

    TENSORMILL_ORACLE=oracle.py python benchmarks/quality.py TEXT MODEL.gguf ... [--chunks 4] [--ctx 512] [--kv f32]

The truth is the reference backend: the file's weights decoded to float32, nothing rounded after them. Scored as
llama-perplexity does: the second half of every chunk. The oracle is a Python file with a class `Oracle(path, kv="f32")`
around libllama whose `logits(ids)` gives float32 [n, vocabulary]. One line of JSON a model, then a table in Markdown.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tensormill.engine import Engine, EngineConfig
from tensormill.evals import Divergence, cut

ROWS = 64  # logits in memory at once


def oracle() -> ModuleType:
    """The module that TENSORMILL_ORACLE names."""
    spec = importlib.util.spec_from_file_location("oracle", os.environ["TENSORMILL_ORACLE"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(path: Path, text: str, args: argparse.Namespace) -> dict[str, Any]:
    """Both engines on one model."""
    started = time.perf_counter()
    config = {"context": args.ctx, "chunk": args.ctx, "rows": ROWS, "kv_type": args.kv, "threads": args.threads}
    model = oracle().Oracle(str(path), kv=args.kv)
    ours, theirs = Divergence(), Divergence()
    with (
        Engine.load(path, EngineConfig(**config)) as fast,
        Engine.load(path, EngineConfig(**config, backend="reference")) as slow,
    ):
        tokenizer = fast.tokenizer
        bos = tokenizer.bos if tokenizer.add_bos else None
        chunks = cut(tokenizer.encode(text), args.ctx, bos=bos, most=args.chunks)
        sessions = [engine.session() for engine in (fast, slow)]
        for number, chunk in enumerate(chunks):
            its = model.logits(chunk.tokens)
            for session in sessions:
                session.feed(chunk.tokens[session.begin(chunk.tokens[: chunk.first]) : chunk.first])
            for at in range(chunk.first, len(chunk.tokens) - 1, ROWS):
                part = chunk.tokens[at : min(at + ROWS, len(chunk.tokens) - 1)]
                targets = np.array(chunk.tokens[at + 1 : at + 1 + len(part)])
                mine, base = (session.logits(part) for session in sessions)
                ours.add(base, mine, targets)
                theirs.add(base, its[at : at + len(part)], targets)
            print(f"{path.name}: chunk {number + 1}/{len(chunks)}: {line(ours)} | {line(theirs)}", file=sys.stderr, flush=True)
    model.close()
    both = {"tensormill": ours.summary(), "llama.cpp": theirs.summary()}
    paired = ours.kl - ours.kl.mean() / theirs.kl.mean() * theirs.kl
    ratio = [float(ours.kl.mean() / theirs.kl.mean()), float(paired.std(ddof=1) / len(paired) ** 0.5 / theirs.kl.mean())]
    return {"model": path.name, "kl_ratio": ratio, "kv": args.kv, **both, "seconds": time.perf_counter() - started}


def line(found: Divergence) -> str:
    """KL and agreement so far."""
    return f"KL {found.kl.mean():.5f}, same top {found.same_top.mean():.2%}"


def table(results: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    rows = ["| model | engine | mean KL | 99 % | max | same top | PPL ratio | KL ratio |", "|---|---|---|---|---|---|---|---|"]
    for r in results:
        for engine in ("tensormill", "llama.cpp"):
            s = r[engine]
            ratio = "{:.3f} ± {:.3f}".format(*r["kl_ratio"]) if engine == "tensormill" else ""
            numbers = "{:.5f} ± {:.5f} | {:.4f} | {:.3f}".format(*s["kl"], s["kl_percentiles"]["99"], s["kl_max"])
            top, ppl = "{:.2%} ± {:.2%}".format(*s["same_top"]), "{:.4f} ± {:.4f}".format(*s["ppl_ratio"])
            rows.append(f"| {r['model']} | {engine} | {numbers} | {top} | {ppl} | {ratio} |")
    return "\n".join(rows)


def main() -> None:
    """Measure every model given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--kv", choices=["f32", "f16"], default="f32")
    args = parser.parse_args()
    results = []
    for path in args.models:
        results.append(measure(path, args.text.read_text(encoding="utf-8"), args))
        print(json.dumps(results[-1]), flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
