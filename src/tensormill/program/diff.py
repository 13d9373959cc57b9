"""Compares two runs of a program value by value, in program order, and names the first value that departs.

The other run is a dump, name → array: our own names, or llama.cpp's graph nodes (`00012|attn_norm-3|RMS_NORM`). Engines fuse
and name differently, so a value of ours is held against the nodes that are known to mean it (`THEIRS`), else against all of
its block that are as large; and it has departed only if neither it nor anything made from it is found there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from tensormill.errors import RequestError
from tensormill.program.ir import Cache, Program, Value

Array = npt.NDArray[Any]
OURS = re.compile(r"(?:blk\.(?P<block>\d+)\.)?(?P<stem>[^#]*)(?:#\d+)?")
NODE = re.compile(r"\d+\|(?P<name>[^|]*)\|(?P<op>[^|]*)")
NUMBERED = re.compile(r"(?P<stem>.*?)(?:-|_l)(?P<block>\d+)(?P<rest>| .*)")

# What llama.cpp calls the value that a weight (or op) of ours makes.
THEIRS: dict[str, tuple[str, ...]] = {
    "token_embd": ("embd", "inp_embd", "model.input_embed", "result_output"),
    "output_norm": ("result_norm",), "output": ("result_output",), "attn_norm": ("attn_norm",),
    "attn_q": ("Qcur", "q"), "attn_k": ("Kcur",), "attn_v": ("Vcur",), "attn_qkv": ("linear_attn_qkv_mixed", "wqkv"),
    "attn_q_norm": ("Qcur_normed",), "attn_k_norm": ("Kcur_normed",), "attn_q_a": ("q",), "attn_q_b": ("q",),
    "attn_kv_a_mqa": ("kv_cmpr_pe",), "attn_kv_a_norm": ("kv_cmpr",), "attn_k_b": ("q_nope_absorbed_perm",),
    "attention": ("kqv_out", "attn_out"), "attn_output": ("attn_out", "attn_o_proj", "linear_attn_out"),
    "post_attention_norm": ("attn_post_norm",), "ffn_norm": ("ffn_norm",), "post_ffw_norm": ("ffn_post_norm",),
    "ffn_gate": ("ffn_gate",), "ffn_up": ("ffn_up",), "ffn_down": ("ffn_out",),
    "ffn_gate_shexp": ("ffn_gate",), "ffn_up_shexp": ("ffn_up",), "ffn_down_shexp": ("ffn_shexp",),
    "ffn_gate_inp": ("ffn_moe_logits",), "ffn_gate_exps": ("ffn_moe_gate",), "ffn_up_exps": ("ffn_moe_up",),
    "ffn_down_exps": ("ffn_moe_down",), "mix": ("ffn_moe_out",), "ffn_latent_down": ("ffn_latent_down",),
    "ffn_latent_up": ("ffn_latent_up",), "ssm_out": ("linear_attn_out",),
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """One array of a dump: its key, what it is called, and its block (None: outside of all, or unknown)."""

    key: str
    stem: str
    block: int | None
    value: Array


@dataclass(frozen=True)
class Report:
    """For each value that has something to be held against: distance and key of the nearest; and the first that departed."""

    nearest: dict[str, tuple[float, str]]
    departed: str | None
    tolerance: float

    def __str__(self) -> str:
        near = sum(distance <= self.tolerance for distance, _ in self.nearest.values())
        counted = f"{near} of {len(self.nearest)} values are found within {self.tolerance:g}"
        if self.departed is None:
            return f"no value departs; {counted}"
        distance, key = self.nearest[self.departed]
        return f"{self.departed} is the first value that departs: {key} is nearest, {distance:.3g} away; {counted}"


def compare(program: Program, ours: Mapping[str, Array], theirs: Mapping[str, Array], tokens: int, tolerance: float) -> Report:
    """Hold one step's values (of `tokens` tokens, every row wanted) against a dump of the same tokens.

    Distances are relative to the largest number of the token. RequestError if the dump has no array as large as any value.
    """
    nodes = Nodes(theirs)
    values = [v for op in program.ops for v in op.outputs if v.dtype == "f32" and v.name in ours]
    nearest: dict[str, tuple[float, str]] = {}
    for value in values:
        mine = ours[value.name]
        held = [(_distance(mine, node.value, tokens), node.key) for node in nodes.like(value, mine.size)]
        if held:
            nearest[value.name] = min(held)
    if not nearest:
        raise RequestError("the dump has no array as large as any value of this model: is it of these tokens and this model?")
    found = {name for name, (distance, _) in nearest.items() if distance <= tolerance}
    excused = _leads_to(program, found)
    departed = next((v.name for v in values if v.name in nearest and v.name not in found | excused), None)
    return Report(nearest, departed, tolerance)


class Nodes:
    """The arrays of a dump, by size."""

    def __init__(self, dump: Mapping[str, Array]) -> None:
        self._dump = dump
        self._by_size: dict[int, list[Node]] = {}
        for node in (_node(key, value) for key, value in dump.items()):
            self._by_size.setdefault(node.value.size, []).append(node)

    def like(self, value: Value, size: int) -> Iterable[Node]:
        """What a value may be held against: the array of its own name; known names; else its block's arrays of its size."""
        if value.name in self._dump:
            return [_node(value.name, self._dump[value.name])]
        block, stem = _split(OURS, value.name)
        large = [n for n in self._by_size.get(size, []) if n.block in (block, None)]
        return [n for n in large if n.block == block and n.stem in THEIRS.get(stem, ())] or large


def _node(key: str, value: Array) -> Node:
    found = NODE.fullmatch(key)
    if found is None:
        block, stem = _split(OURS, key)
        return Node(key, stem, block, value)
    block, stem = _split(NUMBERED, found["name"])
    return Node(key, stem, block, value)


def _split(pattern: re.Pattern[str], name: str) -> tuple[int | None, str]:
    found = pattern.fullmatch(name)
    if found is None or found["block"] is None:
        return None, found["stem"] if found else name
    return int(found["block"]), found["stem"]


def _distance(a: Array, b: Array, tokens: int) -> float:
    if a.size != b.size:
        return inf
    rows = tokens if a.size % tokens == 0 else 1
    with np.errstate(invalid="ignore"):
        a, b = a.reshape(rows, -1).astype(np.float64), b.reshape(rows, -1).astype(np.float64)
        distance = float((np.abs(a - b).max(axis=1) / np.maximum(np.abs(b).max(axis=1), 1e-30)).max())
    return distance if np.isfinite(distance) else inf


def _leads_to(program: Program, found: set[str]) -> set[str]:
    """The values from which some found value was made: they were right, whatever the other engine shows of them."""
    right: set[str] = set()
    caches: set[Cache] = set()
    for op in reversed(program.ops):
        made = any(out.name in found or out.name in right for out in op.outputs)
        if made or (not op.outputs and caches.intersection(op.caches)):
            right.update(v.name for v in op.values)
            caches.update(op.caches)
    return right
