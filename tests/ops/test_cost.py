"""Costs against cases counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ops import sketches
from tensormill.gguf import GGMLType
from tensormill.program import Cache, Op, Recipe, Selected, Tracer, Value
from tensormill.program.cost import Cost, Sizes, cost, stored_bytes, total

T, S, ROWS = 8, 2, 100
SIZES = Sizes(tokens=T, sequences=S, logits=2, rows=ROWS)


def weight(kind: GGMLType, *shape: int) -> Value:
    return Value("w", shape, role="weight", recipe=Recipe.whole("w", kind, shape))


def value(g: Tracer, name: str, *shape: Any) -> Value:
    return g.step.make(name, shape, "i32" if name == "ids" else "f32")


def attend(g: Tracer, a: Callable[..., Value], **how: Any) -> None:
    cache = g.paged("kv", k=[2, 16], v=[2, 8], **how)
    g.attention(a("q", "T", 6, 16), [cache])


def pick(g: Tracer, a: Callable[..., Value]) -> None:
    cache = g.paged("kv", k=[1, 16], ratio=4)
    g.attention(a("q", "T", 6, 16), [Selected(cache, a("ids", "T", 3))], v_dim=12)


CASES: dict[str, tuple[Callable[..., Any], Cost]] = {
    # 512 inputs of 4 bytes, 128 outputs; Q4_K: 144 bytes for 256
    "linear": (
        lambda g, a: g.linear(a("x", "T", 512), weight(GGMLType.Q4_K, 128, 512)),
        Cost(weights=128 * 2 * 144, values=4 * T * (512 + 128), flops=2 * T * 512 * 128),
    ),
    "grouped linear": (
        lambda g, a: g.linear(a("x", "T", 4, 32), weight(GGMLType.F16, 24, 32), groups=4),
        Cost(weights=24 * 32 * 2, values=4 * T * (128 + 24), flops=2 * T * 4 * 32 * 6),
    ),
    # 16 ids of a table of 64 rows of 34 bytes
    "embed": (
        lambda g, a: g.embed(a("ids", "T", 2), weight(GGMLType.Q8_0, 64, 32)),
        Cost(weights=16 * 34, values=4 * T * 2 + 4 * T * 2 * 32),
    ),
    # half of the experts a token, so 1 − 1/2⁸ of them are used
    "experts": (
        lambda g, a: g.expert_linear(a("x", "T", 32), weight(GGMLType.F32, 4, 5, 32), a("ids", "T", 2)),
        Cost(weights=4 * 5 * 32 * 4 * 255 / 256, values=4 * T * (32 + 2 + 10), flops=2 * T * 2 * 32 * 5),
    ),
    # 2 sequences read 100 rows of 2·(16 + 8) halves
    "attention": (attend, Cost(caches=2 * 100 * 48 * 2, values=4 * T * 6 * (16 + 8), flops=2 * T * 6 * 100 * 24)),
    "windowed attention": (
        lambda g, a: attend(g, a, window=10),
        Cost(caches=2 * 10 * 48 * 2, values=4 * T * 6 * (16 + 8), flops=2 * T * 6 * 10 * 24),
    ),
    # 4 tokens a sequence choose 3 of 25 rows each
    "selected attention": (
        pick, Cost(caches=2 * 12 * 16 * 2, values=4 * T * (6 * (16 + 12) + 3), flops=2 * T * 6 * 3 * 28)),
    "indexer": (
        lambda g, a: g.indexer(a("q", "T", 3, 16), a("w", "T", 3), g.paged("i", k=[1, 16], ratio=4), k=5),
        Cost(caches=2 * 25 * 16 * 2, values=4 * T * (48 + 3 + 5), flops=2 * T * 3 * 25 * 16),
    ),
    "kv_write": (
        lambda g, a: g.kv_write(g.paged("kv", k=[2, 16], v=[2, 8]), a("k", "T", 2, 16), a("v", "T", 2, 8)),
        Cost(caches=T * 48 * 2, values=4 * T * 48),
    ),
    "tail": (
        lambda g, a: g.tail(a("x", "T", 6), g.ring("r", 6, 3)),
        Cost(caches=S * 3 * 6 * 4, values=4 * T * (6 + 4 * 6)),
    ),
    "scan": (
        lambda g, a: g.ssm_scan(
            a("x", "T", 4, 3), a("dt", "T", 4), a("A", 4, 1), a("B", "T", 1, 5), a("C", "T", 1, 5), g.state("s", [4, 3, 5])),
        Cost(caches=8 * S * 60, values=4 * (T * (12 + 4 + 5 + 5 + 12) + 4), flops=6 * T * 60),
    ),
    "delta": (
        lambda g, a: g.delta_rule(
            a("q", "T", 2, 3), a("k", "T", 2, 3), a("v", "T", 4, 5), a("b", "T", 4), a("g", "T", 4, 1),
            g.state("s", [4, 3, 5])),
        Cost(caches=8 * S * 60, values=4 * T * (6 + 6 + 20 + 4 + 4 + 20), flops=7 * T * 60),
    ),
    "mix": (
        lambda g, a: g.mix(a("w", "T", 3, 2), a("x", "T", 3, 6)),
        Cost(values=4 * T * (6 + 18 + 12), flops=2 * T * 3 * 2 * 6),
    ),
    "norm": (lambda g, a: g.rms_norm(a("x", "T", 6)), Cost(values=4 * T * 12, flops=4 * T * 6)),
    "hadamard": (lambda g, a: g.hadamard(a("x", "T", 16), 8), Cost(values=4 * T * 32, flops=T * 16 * 3)),
    "view": (lambda g, a: g.heads(a("x", "T", 16), 4), Cost()),
    "gather": (lambda g, a: g.gather_rows(a("x", "T", 16), g.step.out_rows), Cost(values=4 * (2 * 2 * 16 + 2))),
    "silu": (lambda g, a: g.silu(a("x", "T", 16)), Cost(values=4 * T * 32, flops=10 * T * 16)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_counted_by_hand(case: str) -> None:
    build, expected = CASES[case]
    g = Tracer("cost", {})
    build(g, lambda name, *shape: value(g, name, *shape))
    got = cost(g.ops[-1], SIZES)
    for name in ("weights", "caches", "values", "flops"):
        assert getattr(got, name) == pytest.approx(getattr(expected, name)), name
    assert got.bytes == pytest.approx(expected.weights + expected.caches + expected.values)


def test_stored_bytes_of_cuts() -> None:
    stack = Recipe.whole("w", GGMLType.Q4_0, (3, 8, 64))
    assert stored_bytes(stack) == 3 * 8 * 2 * 18
    assert stored_bytes(stack.rows(2, 6).cols(32, 64)) == 3 * 4 * 18


def test_a_fused_op_works_as_its_body_and_moves_less() -> None:
    program = sketches.llama().program
    at = next(i for i, op in enumerate(program.ops) if op.kind == "unary")
    body = program.ops[at : at + 3]  # silu, linear, mul
    hidden = {v for op in body for v in op.outputs}
    inputs = tuple(dict.fromkeys(v for op in body for v in op.values if v not in hidden))
    fused = cost(Op("glu", inputs, body[-1].outputs, {}, body), SIZES)
    apart = [cost(op, SIZES) for op in body]
    assert fused.flops == sum(c.flops for c in apart) and fused.weights == sum(c.weights for c in apart)
    assert fused.values == sum(c.values for c in apart) - 4 * T * 40 * 4  # silu and up: written and read once each


def test_a_dense_model_decodes_at_two_flops_a_weight() -> None:
    program = sketches.llama().program
    sizes = Sizes(rows=0, kv_bytes=0)
    matrices = sum(v.shape[0] * v.shape[1] for v in program.weights if "embd" not in v.name)
    step = total(program, sizes)
    linear = sum(cost(op, sizes).flops for op in program.ops if op.kind == "linear")
    assert linear == 2 * matrices and step.flops > linear
    assert step.weights == 4 * (matrices + 24)  # one row of the table


def test_symbols() -> None:
    sizes = Sizes(tokens=10, sequences=3, logits=4, media=5, rows=70)
    assert [sizes.number(n) for n in ("T", "S", "R", "M", "C4", 7)] == [10, 3, 4, 5, 2, 7]
    assert sizes.seen(Cache("c", "paged", (1, 1), ratio=4)) == 17
    assert sizes.seen(Cache("c", "paged", (1, 1), window=8, ratio=4)) == 2
