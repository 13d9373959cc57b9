"""What this machine would allow in a cell: of each op, bytes ÷ the rate at which they are read or operations ÷ the peak.

The rate is that of reading a block as large as what the step reads, so caches count. Operations of quantised products count
at the peak of 8-bit products of the chosen instruction set, of F16 and BF16 products and of attention over f16, q8_0 and q4_0
at that of 16-bit ones, all others at that of float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

from tensormill import models
from tensormill.backends.cpu.executable import OFFERS
from tensormill.backends.cpu.limits import dot_rate, fma_rate, pair_rate, read_rate
from tensormill.backends.cpu.work import attends_in_integers
from tensormill.gguf import GGMLType, GGUFFile
from tensormill.program.cost import Sizes, cost
from tensormill.program.ir import Op, Program
from tensormill.program.kv import KV_TYPES, KVType
from tensormill.program.passes import prepare
from versus.cells import Cell

WORDS = {GGMLType.F16, GGMLType.BF16}  # multiplied as 16-bit numbers
CHUNK = 512  # tokens of a prompt in one step


@cache
def _program(path: Path) -> Program:
    with GGUFFile(path) as file:
        return prepare(models.trace(file, context=models.context_length(file.metadata) or 8192)["main"], OFFERS)


def limit(path: Path, cell: Cell, threads: int) -> float | None:
    """The cell's number at the limit, in its unit; None where there is none (a start, a busy machine)."""
    kv_type = cast(KVType, cell.kv)
    kv = KV_TYPES[kv_type].row_bytes(32) / 32
    if cell.unit == "MB":
        return path.stat().st_size / 1e6 + 100
    if cell.unit != "tok/s" or cell.part == "busy":
        return None
    program = _program(path)
    if cell.prompt:
        return cell.prompt / sum(_seconds(program, sizes, kv_type, threads) for sizes in _chunks(cell, kv))
    rows = cell.depth + cell.generate // 2
    sizes = Sizes(tokens=cell.batch, sequences=cell.batch, logits=cell.batch, rows=rows, kv_bytes=kv)
    return cell.batch / _seconds(program, sizes, kv_type, threads)


def _chunks(cell: Cell, kv: float) -> Iterator[Sizes]:
    for done in range(0, cell.prompt, CHUNK):
        tokens = min(CHUNK, cell.prompt - done)
        yield Sizes(tokens=tokens, rows=cell.depth + done + tokens // 2, kv_bytes=kv)


def _seconds(program: Program, sizes: Sizes, kv_type: KVType, threads: int) -> float:
    """Each op in turn, at the speed of memory or of arithmetic, whichever is slower."""
    costs = [(cost(op, sizes), _peak(op, kv_type, threads)) for op in program.ops]
    rate = read_rate(int(sum(c.weights + c.caches for c, _ in costs)), threads)
    return sum(max((c.weights + c.caches) / rate, c.flops / peak) for c, peak in costs)


def _peak(op: Op, kv_type: KVType, threads: int) -> float:
    """Operations a second of the products that an op is made of."""
    if attends_in_integers(op, kv_type):
        return pair_rate(threads)
    types = {c.type for v in op.values if v.role == "weight" and v.recipe for c in v.recipe.cuts}
    if "linear" not in op.kind or types <= {GGMLType.F32}:
        return fma_rate(threads)
    return pair_rate(threads) if types <= WORDS | {GGMLType.F32} else dot_rate(threads)
