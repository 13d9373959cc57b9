"""Finds the file of an architecture, traces it, and checks that the model file and it fit: no more tensors, no fewer.

What an architecture computes is in its own file; this one names none.
"""

from __future__ import annotations

import difflib
import pkgutil
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Protocol

import tensormill.models
from tensormill.errors import ModelError, ProgramError
from tensormill.models.hyper import Hyper
from tensormill.program import Program, Scope, Tracer, WeightSource
from tensormill.program.recipe import Range
from tensormill.program.weights import File, Tensor

NOT_ARCHITECTURES = {"blocks", "hyper", "registry"}
IGNORED_EVERYWHERE = ("*.input_scale",)  # NVFP4's advice on rounding activations: ours are rounded by their own maximum
BLOCK = re.compile(r"blk\.(\d+)\.")


class ModelFile(File, Protocol):
    """What a model is traced from; `tensormill.gguf.GGUFFile` is one."""

    @property
    def metadata(self) -> Mapping[str, object]:
        """All keys."""

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors by name."""


def known() -> list[str]:
    """The names of every architecture, as `general.architecture` spells them."""
    return sorted(_modules())


def trace(file: ModelFile, *, context: int | None = None) -> dict[str, Program]:
    """The programs of a model by name; for now "main", with outputs `logits` [R, V] and `hidden` [R, D].

    `context` is the context length that will be used, where it is not the model's own (some RoPE tables depend on it).
    ModelError: unknown architecture, a key that is missing or odd, a tensor that is missing, misshapen or left over.
    """
    c = Hyper(file.metadata, context=context)
    module = _find(c.arch)
    _check_sizes(c, file.tensors)
    g = Tracer("main", file.tensors, source=WeightSource(file))
    try:
        outputs = module.trace(g, Scope(g), c)
    except ProgramError as error:
        raise ModelError(f"the file's tensors do not fit the architecture {c.arch!r}: {error}") from error
    program = g.program(**outputs)
    _check_all_used(c, g, getattr(module, "IGNORED", ()))
    _check_whole(c, program, file.tensors)
    return {"main": program}


def context_length(metadata: Mapping[str, object]) -> int:
    """The context length that the model was made for, tokens; 0 if the file does not say."""
    return Hyper(metadata).context


@cache
def _names() -> frozenset[str]:
    """The names of the model files."""
    return frozenset(info.name for info in pkgutil.iter_modules(tensormill.models.__path__)) - NOT_ARCHITECTURES


@cache
def _modules() -> dict[str, ModuleType]:
    """Architecture → its module."""
    found: dict[str, ModuleType] = {}
    for name in sorted(_names()):
        found |= _offered(name)
    return found


def _offered(name: str) -> dict[str, ModuleType]:
    """What the model file of that name offers: architecture → the module."""
    module = import_module(f"tensormill.models.{name}")
    return dict.fromkeys(getattr(module, "ARCHITECTURES", (name.replace("_", "-"),)), module)


def _find(arch: str) -> ModuleType:
    own = arch.replace("-", "_")  # most are in the file of their own name, and the others need not be imported then
    if own in _names() and arch in (offered := _offered(own)):
        return offered[arch]
    modules = _modules()
    if arch in modules:
        return modules[arch]
    close = difflib.get_close_matches(arch, modules, n=len(modules), cutoff=0.5)
    rest = sorted(set(modules) - set(close))
    raise ModelError(f"the architecture {arch[:80]!r} is not known here; this build knows {', '.join([*close, *rest])}")


def _check_sizes(c: Hyper, tensors: Mapping[str, Tensor]) -> None:
    """Refuse sizes that the tensors do not bear out, before anything is made for each block."""
    present = {int(m[1][:9]) for name in tensors if (m := BLOCK.match(name))}
    found = max(present, default=-1) + 1
    if c.blocks != found:
        raise c.odd("block_count", f"{found}, the number of blocks whose tensors the file has")
    embedding = tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape[-1] != c.D:
        raise c.odd("embedding_length", f"{embedding.shape[-1]}, the width of token_embd.weight")


def _check_all_used(c: Hyper, g: Tracer, ignored: tuple[str, ...]) -> None:
    spare = tuple(f"blk.{i}.*" for i in range(c.L, c.blocks))
    patterns = (*IGNORED_EVERYWHERE, *ignored, *spare)
    left = [name for name in g.tensors if name not in g.used and not any(fnmatchcase(name, p) for p in patterns)]
    if left:
        names = ", ".join(left[:12]) + (f" and {len(left) - 12} more" if len(left) > 12 else "")
        raise ModelError(
            f"nothing in the architecture {c.arch!r} uses {names}: the file is perhaps a variant that this build does not know"
        )


def _check_whole(c: Hyper, program: Program, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors of which only a part is used: a fused one that is longer than its parts."""
    read: dict[str, tuple[set[Range], set[Range]]] = {}
    for cut in (cut for w in program.weights if w.recipe for cut in w.recipe.cuts):
        rows, columns = read.setdefault(cut.tensor, (set(), set()))
        rows.add(cut.rows)
        columns.add(cut.cols)
    for name, (rows, columns) in read.items():
        shape = tensors[name].shape
        if not (_covers(rows, shape[-2] if len(shape) > 1 else 1) and _covers(columns, shape[-1])):
            raise ModelError(f"{name} is {list(shape)}, more than the architecture {c.arch!r} with these hyperparameters uses")


def _covers(ranges: set[Range], size: int) -> bool:
    end = 0
    for start, stop in sorted(ranges):
        if start > end:
            return False
        end = max(end, stop)
    return end == size
