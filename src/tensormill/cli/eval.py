"""`tensormill eval`: how good a model is on a text: `ppl` (perplexity) and `kld` (divergence from a base)."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tensormill.cli.settings import AsJson, ModelFlags
from tensormill.config import EngineConfig
from tensormill.errors import RequestError

if TYPE_CHECKING:
    from tensormill.engine import Engine
    from tensormill.evals.text import Chunk

ROWS = 64  # logits in memory at once
CONTEXT = 512


def main(
    measure: Literal["ppl", "kld"],
    model: str | None = None,
    /,
    *,
    file: Annotated[Path, Parameter(name=["--file", "-f"])],
    base: str | None = None,
    chunks: int = 0,
    json_: AsJson = False,
    engine: ModelFlags = EngineConfig(),  # noqa: B008  (frozen)
) -> int:
    """Measure MODEL (without one: the demo model) on a text, as llama-perplexity does.

    The text is cut into chunks of --ctx tokens (512); the second half of each is scored. `ppl` is the perplexity. `kld`
    compares the distributions with those of --base: KL divergence, and how often the likeliest token is the same.

    Parameters
    ----------
    measure
        ppl or kld.
    model
        A .gguf file; any part of a split one.
    file
        The text, as UTF-8.
    base
        What kld compares with, a .gguf file; without one, MODEL itself with its weights decoded to float32 and nothing
        rounded (the reference backend, which is slow).
    chunks
        Most chunks that are scored; 0 is all of the text.
    json_
        Print JSON: every mean with its standard error, and percentiles.
    """
    from tensormill.cli.models import load

    if base is not None and measure == "ppl":
        raise RequestError("--base belongs to kld; ppl measures one model")
    text = _read(file)
    context = engine.context or CONTEXT
    config = dataclasses.replace(engine, context=context, rows=max(engine.rows, min(ROWS, engine.chunk)))
    with load(model, config) as loaded:
        parts = _cut(loaded, text, context, chunks)
        about = {"model": loaded.file.path.name, "chunks": len(parts), "context": context}
        if measure == "ppl":
            found = _perplexity(loaded, parts)
        else:
            exact = config if base is not None else dataclasses.replace(config, backend="reference", kv_type="f32")
            with load(model if base is None else base, exact) as other:
                found = _divergence(loaded, other, parts)
    _tell(about, found, json_)
    return 0


def _perplexity(engine: Engine, chunks: list[Chunk]) -> dict[str, Any]:
    from tensormill.evals import perplexity

    found = perplexity(engine, chunks, _progress)
    return {"positions": len(found.losses), "ppl": [found.value.mean, found.value.error]}


def _divergence(engine: Engine, base: Engine, chunks: list[Chunk]) -> dict[str, Any]:
    from tensormill.evals import compare

    return compare(engine, base, chunks, _progress).summary()


def _cut(engine: Engine, text: str, context: int, most: int) -> list[Chunk]:
    from tensormill.evals import cut

    if most < 0:
        raise RequestError(f"--chunks must be 0 or more, not {most}")
    tokenizer = engine.tokenizer
    return cut(tokenizer.encode(text), context, bos=tokenizer.bos if tokenizer.add_bos else None, most=most)


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\rchunk {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _tell(about: dict[str, Any], found: dict[str, Any], as_json: bool) -> None:
    from tensormill.cli.listing import print_json, table

    if as_json:
        print_json(about | found)
        return
    rows = [("chunks", f"{about['chunks']} of {about['context']} tokens"), ("positions", f"{found['positions']}")]
    for name, value in found.items():
        if isinstance(value, list):
            rows.append((name, f"{value[0]:.6g} ± {value[1]:.2g}"))
        elif isinstance(value, dict):
            rows += [(f"{name.removesuffix('_percentiles')} {p} %", f"{v:.6g}") for p, v in value.items()]
        elif name != "positions":
            rows.append((name, f"{value:.6g}"))
    print(table(rows))
