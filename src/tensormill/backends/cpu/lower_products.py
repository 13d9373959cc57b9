"""How products with weights become records: parts by type, activations quantised once, experts grouped once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensormill.backends.cpu.lower import WORD_INPUTS, Lowering, rule
from tensormill.backends.cpu.lower_rows import value_of
from tensormill.backends.cpu.view import View
from tensormill.backends.cpu.weights import Member, Packed, Reads
from tensormill.program.ir import Op, Operand
from tensormill.program.recipe import Recipe

SOURCES: tuple[Reads, ...] = ("values", "codes", "words")  # numbered as the kernels know them


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """One matrix of a product: where its output columns go, and what is done to them."""

    packed: Packed | Member
    out: View
    bias: View | None
    scale: float = 1.0
    column: int = 0  # first input column (block-diagonal products)
    factors: View | None = None  # of experts: a scale each, or one for all


@rule("linear")
def _linear(g: Lowering, op: Op) -> None:
    x, w, b, scale = op.inputs
    groups = op.attrs["groups"]
    if groups == 1:
        return _emit_parts(g, g.rows(x), _parts(g, w, b, scale, g.make(op.outputs[0])))
    rows, out = g.wide(x), g.make(op.outputs[0]).wide()
    assert out is not None
    (packed,) = g.weights.matrices(_recipe(w), groups)
    bias = _vector(g, b)
    parts = []
    for i in range(groups):
        first, last = i * packed.rows, (i + 1) * packed.rows
        one = Member(packed, i)
        some = bias and bias.slice(1, first, last)
        parts.append(_Part(one, out.slice(1, first, last), some, _number(g, scale), i * packed.columns))
    return _emit_parts(g, rows, parts)


@rule("linears")
def _linears(g: Lowering, op: Op) -> None:
    parts: list[_Part] = []
    for k, out in enumerate(op.outputs):
        w, b, scale = op.inputs[1 + 3 * k : 4 + 3 * k]
        parts += _parts(g, w, b, scale, g.make(out))
    _emit_parts(g, g.rows(op.inputs[0]), parts)


def _parts(g: Lowering, w: Operand, b: Operand, scale: Operand, out: View) -> list[_Part]:
    flat = out.rows()
    assert flat is not None
    bias, factor = _vector(g, b), _number(g, scale)
    parts, at = [], 0
    for packed in g.weights.matrices(_recipe(w)):
        end = at + packed.rows
        parts.append(_Part(packed, flat.slice(1, at, end), bias and bias.slice(1, at, end), factor))
        at = end
    return parts


def _emit_parts(g: Lowering, rows: View, parts: Sequence[_Part]) -> None:
    for reads in SOURCES:
        some = [p for p in parts if p.packed.reads == reads]
        if reads == "words" and any(p.column % WORD_INPUTS for p in some):  # a scale would span two groups
            for p in some:
                _emit(g, rows.slice(1, p.column, p.column + p.packed.columns), reads, [replace(p, column=0)])
        elif some:
            _emit(g, rows, reads, some)


def _emit(g: Lowering, rows: View, reads: Reads, parts: Sequence[_Part]) -> None:
    g.emit(
        "linears",
        (*_source(g, rows, reads), *(p.bias for p in parts)),
        [p.out for p in parts],
        [p.packed for p in parts],
        (SOURCES.index(reads), *(p.column for p in parts)),
        [p.scale for p in parts],
    )


def _source(g: Lowering, rows: View, reads: Reads) -> tuple[View | None, ...]:
    if reads == "values":
        return rows, None, None
    return (g.codes(rows) if reads == "codes" else g.words(rows)).views


@rule("expert_linear")
def _expert_linear(g: Lowering, op: Op) -> None:
    x, w, ids, b, scale = op.inputs
    _experts(g, x, ids, [(w, b, scale)], op)


@rule("expert_linears")
def _expert_linears(g: Lowering, op: Op) -> None:
    x, ids = op.inputs[:2]
    parts = [(op.inputs[2 + 3 * k], op.inputs[3 + 3 * k], op.inputs[4 + 3 * k]) for k in range(len(op.outputs))]
    _experts(g, x, ids, parts, op)


def _experts(g: Lowering, x: Operand, ids: Operand, weights: Sequence[tuple[Operand, Operand, Operand]], op: Op) -> None:
    per_pair = len(value_of(x).shape) == 3
    parts: list[_Part] = []
    for (w, b, scale), value in zip(weights, op.outputs, strict=True):
        recipe = _recipe(w)
        out = g.make(value).rows()
        assert out is not None
        bias, factor, at = g.maybe(b), g.maybe(scale), 0
        for packed in g.weights.matrices(recipe, recipe.shape[0]):
            end = at + packed.rows
            parts.append(_Part(packed, out.slice(1, at, end), bias and bias.slice(1, at, end), factors=factor))
            at = end
    grouped = g.groups(value_of(ids), _recipe(weights[0][0]).shape[0])
    rows = g.rows(x)
    for reads in SOURCES:
        if some := [p for p in parts if p.packed.reads == reads]:
            g.emit(
                "expert_linears",
                (*_source(g, rows, reads), *grouped, *(v for p in some for v in (p.bias, p.factors))),
                [p.out for p in some],
                [p.packed for p in some],
                (SOURCES.index(reads), int(per_pair)),
            )


def _recipe(w: Operand) -> Recipe:
    recipe = value_of(w).recipe
    assert recipe is not None, f"a product needs a weight, not {w}"
    return recipe


def _vector(g: Lowering, b: Operand) -> View | None:
    if b is None:
        return None
    recipe = value_of(b).recipe
    assert recipe is not None
    return g.constant(g.weights.array(recipe).reshape(1, -1))


def _number(g: Lowering, scale: Operand) -> float:
    if scale is None:
        return 1.0
    return float(np.ravel(g.weights.array(_recipe(scale)))[0])


@rule("quantise")
def _quantise(g: Lowering, op: Op) -> None:
    """Products quantise what they read, once (`Lowering.codes`): the op is a view."""
    g.views[op.outputs[0]] = g.view(op.inputs[0])
