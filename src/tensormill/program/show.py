"""A program as a person reads it: block by block, equal blocks once, with the types, sizes and cost of the weights.

`Op.__str__` is the bare line; what an op means is its function in `backends/reference`; costs are from `cost.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tensormill.program.cost import Sizes, cost, stored_bytes
from tensormill.program.ir import Cache, Op, Operand, Program, Source, Value, short

BLOCK = re.compile(r"blk\.(\d+)\.")
# Attributes that say nothing at these values, or that the operands and shapes show already.
USUAL: dict[str, object] = {
    "groups": 1, "over": "mean", "at": "start", "inverse": False, "softcap": 0.0, "v_dim": 0, "alibi": 0.0, "buckets": 0,
    "style": "causal", "window": 0, "rows": "T", "keep": 1, "add": False, "mag": 1.0, "pad": 0.0, "span": 1, "block": 1,
}  # fmt: skip
SHOWN_ELSEWHERE = {"shape", "sources", "kind", "comp"}
CONTEXT = 1024


@dataclass(frozen=True)
class Part:
    """Successive ops of one block, or of none; `lines` are free of the block's number, so equal blocks have equal lines."""

    block: int | None
    ops: tuple[Op, ...]
    lines: tuple[str, ...]


def show(program: Program, *, context: int = CONTEXT) -> str:
    """The whole text; costs are those of one token behind `context` others."""
    sizes = Sizes(rows=context)
    parts = list(_parts(program))
    alike: dict[tuple[str, ...], list[Part]] = {}
    for part in parts:
        alike.setdefault(part.lines, []).append(part)
    text = [_head(program, parts, sizes)]
    for same in alike.values():
        text += ["", _title(same, sizes), *_with_weights(same)]
    outputs = ", ".join(f"{name} = {value.name} {_shape(value)}" for name, value in program.outputs.items())
    return "\n".join([*text, "", f"outputs: {outputs}"])


def _head(program: Program, parts: Sequence[Part], sizes: Sizes) -> str:
    blocks = {p.block for p in parts if p.block is not None}
    weights = [w for w in program.weights if w.recipe]
    lines = [
        f"program {program.name}: {len(program.ops)} ops in {len(blocks)} blocks",
        f"weights: {_weights(weights)}",
        f"one token behind {sizes.rows}: {_cost(program.ops, sizes)}",
        "inputs: " + ", ".join(f"{v.name} {_shape(v)}" for v in program.inputs),
    ]
    return "\n".join(lines + [f"caches: {line}" for line in _caches(program.caches)])


def _caches(caches: Iterable[Cache]) -> Iterator[str]:
    kinds: dict[str, list[str]] = {}
    for cache in caches:
        kinds.setdefault(str(cache).split(":", 1)[1], []).append(cache.name)
    for kind, names in kinds.items():
        inside = dict.fromkeys(BLOCK.sub("", name) for name in names)
        yield f"{', '.join(inside)}: {kind}, in blocks {_ranges(_block_of(n) for n in names)}"


# ---- parts ----


def _parts(program: Program) -> Iterator[Part]:
    blocks = [_block_of(_label(op)) for op in program.ops]
    readers: dict[Value, set[int]] = {}
    groups = [list(group) for _, group in groupby(range(len(blocks)), key=lambda i: blocks[i])]
    for n, group in enumerate(groups):
        for value in (v for i in group for v in program.ops[i].values):
            readers.setdefault(value, set()).add(n)
    for n, group in enumerate(groups):
        ops = tuple(program.ops[i] for i in group)
        names = _names(ops, blocks[group[0]], {v for v, by in readers.items() if by == {n}})
        yield Part(blocks[group[0]], ops, tuple(_line(op, names) for op in ops))


def _label(op: Op) -> str:
    """What tells the block of an op: its first output, else its cache."""
    return op.outputs[0].name if op.outputs else next((c.name for c in op.caches), "")


def _block_of(name: str) -> int | None:
    found = BLOCK.match(name)
    return int(found[1]) if found else None


def _names(ops: Iterable[Op], block: int | None, only_here: set[Value]) -> dict[Value, str]:
    """Short names: a block's own without its number; x for what came in from before and nobody else reads."""
    own = {out for op in ops for out in op.outputs}
    names: dict[Value, str] = {}
    coming = 0
    for value in (v for op in ops for v in (*op.values, *op.outputs)):
        if value in names:
            continue
        outside = value.role == "temp" and value not in own
        if outside and block is not None and value in only_here and value.name.partition("#")[0] != "angles":
            coming += 1
            names[value] = "x" if coming == 1 else f"x{coming}"
        else:
            names[value] = value.name if block is None else value.name.replace(f"blk.{block}.", "")
    return names


# ---- lines ----


def _line(op: Op, names: dict[Value, str]) -> str:
    made = ", ".join(f"{names[v]} {_shape(v)}" for v in op.outputs)
    kind = str(op.attrs["kind"]) if op.kind == "unary" else op.kind
    shown = {k: v for k, v in op.attrs.items() if k not in SHOWN_ELSEWHERE and not _usual(op, k, v)}
    attrs = "".join(f"  {k}={short(v)}" for k, v in shown.items())
    return f"{made or '·':<34} = {kind}({_operands(op, names)}){attrs}"


def _usual(op: Op, key: str, value: Any) -> bool:
    if value is None or (op.kind == "unary" and key in "ab" and value == 0.0):
        return True
    return isinstance(value, (int, float, str)) and USUAL.get(key) == value


def _operands(op: Op, names: dict[Value, str]) -> str:
    if op.kind != "attention":
        return ", ".join(_operand(i, names) for i in op.inputs if i is not None)
    q, sinks, bias, *rest = op.inputs
    named = [f"{name}={_operand(v, names)}" for name, v in (("sinks", sinks), ("bias", bias)) if v is not None]
    sources: tuple[Source, ...] = op.attrs["sources"]
    described = [_source(rest[3 * i : 3 * i + 3], names) for i in range(len(sources))]
    return ", ".join([_operand(q, names), *described, *named])


def _source(operands: Sequence[Operand], names: dict[Value, str]) -> str:
    rows, values, ids = operands
    text = _operand(rows, names) + (f"/{_operand(values, names)}" if values is not None else "")
    return text + (f"[{_operand(ids, names)}]" if ids is not None else "")


def _operand(operand: Operand, names: dict[Value, str]) -> str:
    if isinstance(operand, Cache):
        return "@" + BLOCK.sub("", operand.name) + (f" (window {operand.window})" if operand.window else "")
    return "–" if operand is None else names[operand]


def _shape(value: Value) -> str:
    text = f"[{', '.join(map(str, value.shape))}]"
    return text if value.dtype == "f32" else f"{value.dtype}{text}"


# ---- weights and cost ----


def _title(same: Sequence[Part], sizes: Sizes) -> str:
    ops = same[0].ops
    title = "outside of blocks" if same[0].block is None else f"block {_ranges(p.block for p in same)}"
    count = f"{len(same)} equal blocks, each " if len(same) > 1 else ""
    return f"{title}: {count}{_cost(ops, sizes)}"


def _with_weights(same: Sequence[Part]) -> Iterator[str]:
    """Each line of equal parts, with the types of its weights in any of them."""
    for i, line in enumerate(same[0].lines):
        types = Counter(t for part in same for t in _types(part.ops[i]))
        weights = [v for v in same[0].ops[i].values if v.role == "weight" and v.recipe]
        shapes = " ".join(_shape(w) for w in weights)
        size = sum(stored_bytes(w.recipe) for w in weights if w.recipe)
        mixed = ", ".join(t if len(types) == 1 else f"{t}×{n}" for t, n in types.most_common())
        yield f"  {line:<92}  {mixed} {shapes} {_bytes(size)}" if weights else f"  {line}"


def _types(op: Op) -> list[str]:
    cuts = [c for v in op.values if v.recipe for c in v.recipe.cuts]
    return list(dict.fromkeys(c.type.name for c in cuts))


def _weights(weights: Sequence[Value]) -> str:
    """Bytes by type; a tensor that several recipes read in the same places counts once."""
    by_type: Counter[str] = Counter()
    for cut in dict.fromkeys(c for w in weights if w.recipe for c in w.recipe.cuts):
        experts = cut.experts[1] - cut.experts[0] if cut.experts else 1
        by_type[cut.type.name] += experts * (cut.rows[1] - cut.rows[0]) * cut.type.row_bytes(cut.cols[1] - cut.cols[0])
    kinds = ", ".join(f"{name} {_bytes(n)}" for name, n in by_type.most_common())
    return f"{_bytes(sum(by_type.values()))} ({kinds})"


def _cost(ops: Iterable[Op], sizes: Sizes) -> str:
    costs = [cost(op, sizes) for op in ops]
    weights, caches, flops = (sum(getattr(c, name) for c in costs) for name in ("weights", "caches", "flops"))
    read = f"reads {_bytes(weights)} of weights" + (f" and {_bytes(caches)} of caches" if caches else "")
    return f"{read}, {_scaled(flops)}FLOP"


def _bytes(n: float) -> str:
    return f"{_scaled(n)}B"


def _scaled(n: float) -> str:
    for unit in ("", "k", "M", "G"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} T"


def _ranges(numbers: Iterable[int | None]) -> str:
    """0–4, 6–10, 12."""
    runs: list[list[int]] = []
    for n in sorted({n for n in numbers if n is not None}):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)
