"""`tensormill trace`: the program that a model becomes, and where its values first depart from somebody else's.

What the ops mean is in the reference backend; how dumps are compared, in `program/diff.py`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensormill.cli.settings import AsJson
from tensormill.errors import RequestError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tensormill.program import Program
    from tensormill.program.diff import Report


def main(
    model: str | None = None,
    /,
    *,
    fused: Annotated[bool, Parameter(negative="")] = False,
    backend: str = "cpu",
    tokens: str | None = None,
    diff: Path | None = None,
    dump: Path | None = None,
    tolerance: float = 1e-3,
    json_: AsJson = False,
) -> int:
    """Print the program of MODEL (without one: the demo model), or compare its values with a dump.

    Parameters
    ----------
    model
        A .gguf file; any part of a split one.
    fused
        The program as a backend runs it, after the passes.
    backend
        For which backend the passes fuse.
    tokens
        Token ids to run, for --diff and --dump: 1,2,3
    diff
        Run the plain program with the reference and name the first value that departs from this .npz dump: one
        that --dump wrote, or llama.cpp's nodes as INDEX|NAME|OP.
    dump
        Write every value of the plain program to this .npz file.
    tolerance
        How far apart values may be, relative to the largest of their token.
    json_
        Print JSON.
    """
    from tensormill.cli.models import find

    path = find(model)
    if diff is None and dump is None:
        return _print(path, fused, backend, json_)
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise RequestError(f"tolerance must be 0 or more, not {tolerance}")
    if tokens is None:
        raise RequestError("--diff and --dump need the tokens to run: --tokens 1,2,3")
    from tensormill.cli.logits import token_ids

    return _run(path, token_ids(tokens, None), diff, dump, tolerance, json_)


def _print(path: Path, fused: bool, backend: str, json_: bool) -> int:
    from tensormill import models
    from tensormill.cli.listing import print_json
    from tensormill.gguf import GGUFFile
    from tensormill.program.passes import prepare

    with GGUFFile(path) as file:
        programs = models.trace(file)
    if fused:
        programs = {name: prepare(program, _offers(backend)) for name, program in programs.items()}
    if json_:
        print_json({name: _as_json(program) for name, program in programs.items()})
    else:
        print(*programs.values(), sep="\n\n")
    return 0


def _offers(backend: str) -> frozenset[str]:
    """The fused kinds of a backend; RequestError if there is no such backend."""
    from importlib import import_module

    try:
        module = import_module(f"tensormill.backends.{backend}.executable")
    except ModuleNotFoundError:
        raise RequestError(f"there is no backend {backend!r}") from None
    offers: frozenset[str] = getattr(module, "OFFERS", frozenset())
    return offers


def _as_json(program: Program) -> dict[str, Any]:
    return {
        "caches": [str(cache) for cache in program.caches],
        "ops": [
            {
                "kind": op.kind,
                "inputs": [None if value is None else value.name for value in op.inputs],
                "outputs": [{"name": value.name, "shape": list(value.shape), "dtype": value.dtype} for value in op.outputs],
                "attrs": {key: _plain(value) for key, value in op.attrs.items() if value is not None},
            }
            for op in program.ops
        ],
        "outputs": {name: value.name for name, value in program.outputs.items()},
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _run(path: Path, tokens: list[int], diff: Path | None, dump: Path | None, tolerance: float, json_: bool) -> int:
    import numpy as np

    from tensormill.cli.listing import print_json
    from tensormill.cli.models import load
    from tensormill.config import EngineConfig
    from tensormill.engine.values import values_of
    from tensormill.program.diff import compare

    theirs = _read_dump(diff) if diff is not None else {}
    config = EngineConfig(backend="reference", context=len(tokens), chunk=len(tokens), rows=len(tokens), kv_type="f32")
    with load(str(path), config) as engine:
        ours = values_of(engine, tokens)
        program = engine.program
    if dump is not None:
        with dump.open("wb") as file:
            np.savez(file, **ours)  # type: ignore[arg-type]
    if diff is None:
        return 0
    report = compare(program, ours, theirs, len(tokens), tolerance)
    if json_:
        print_json(_as_distances(report))
    else:
        print(report)
    return 0 if report.departed is None else 1


def _as_distances(report: Report) -> dict[str, Any]:
    """Each value's nearest array and its distance; null where it has another size, since JSON has no infinity."""
    nearest = {
        name: {"nearest": key, "distance": distance if math.isfinite(distance) else None}
        for name, (distance, key) in report.nearest.items()
    }
    return {"departed": report.departed, "tolerance": report.tolerance, "values": nearest}


def _read_dump(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file; RequestError if it is none."""
    import zipfile
    import zlib

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error):  # numpy's words are about pickles
        raise RequestError(f"cannot read {path} as an .npz dump: it is of another kind, or damaged") from None
