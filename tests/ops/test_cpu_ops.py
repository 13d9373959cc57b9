"""Each op of the CPU backend against its NumPy meaning in float64, over odd shapes, broadcasts and sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ops.cpu_driver import OneOp, normal
from tensormill.backends.cpu import compile
from tensormill.errors import BackendError, ProgramError
from tensormill.program import Limits, Tracer
from tensormill.program.unary import KINDS

WIDTHS = (1, 7, 16, 33, 100, 258)
NUMBERS = {"affine": (1.5, -0.25), "clamp": (-0.5, 1.25), "mod": (0.75, 0.0)}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_unary(kind: str, width: int) -> None:
    x = normal(5, width, scale=3.0)
    x = np.abs(x) + 1e-3 if kind in ("log", "sqrt") else x
    a, b = NUMBERS.get(kind, (0.0, 0.0))
    OneOp(x, lambda g, w, v: g.unary(v, kind, a, b)).check(rtol=4e-7)


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "gelu_quick", "sigmoid", "tanh", "exp", "softplus", "relu2"])
def test_unary_far_out(kind: str) -> None:
    x = np.array([[-1e4, -200, -103.9, -90, -88, -20, -1e-5, -0.0, 0.0, 1e-30, 1e-5, 0.624, 0.626, 20, 60, 88]], np.float32)
    one = OneOp(x, lambda g, w, v: g.unary(v, kind))
    expected, got = one.reference(one.step([1])), one.cpu(one.step([1]))
    rtol = 4e-6 if "gelu" in kind else 6e-7  # the exponent is itself a rounded product
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=1e-37)


def test_exp_reaches_infinity_and_keeps_nan() -> None:
    one = OneOp(np.array([[89.0, 1e9, np.inf, np.nan, -np.inf]], np.float32), lambda g, w, v: g.exp(v))
    np.testing.assert_array_equal(one.cpu(one.step([1])), [[np.inf, np.inf, np.inf, np.nan, 0]])


@pytest.mark.parametrize("width", WIDTHS)
def test_norms(width: int) -> None:
    x, n = normal(4, width, seed=2), normal(width, seed=3)
    b = normal(width, seed=4)
    OneOp(x, lambda g, w, v: g.rms_norm(v, w.n, 1e-5), n=n).check()
    OneOp(x, lambda g, w, v: g.rms_norm(v, None, 1e-5, over="sum")).check()
    OneOp(x, lambda g, w, v: g.layer_norm(v, w.n, w.b, 1e-5), n=n, b=b).check(rtol=1e-5)


def test_norm_of_heads_with_a_row_each() -> None:
    OneOp(normal(3, 4 * 20), lambda g, w, v: g.rms_norm(g.heads(v, 4), w.n, 1e-6), n=normal(4, 20)).check()


def test_a_row_of_zeros_stays() -> None:
    assert not OneOp(np.zeros((2, 24)), lambda g, w, v: g.rms_norm(v)).check().any()


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("shape", [(3, 5), (4, 19), (1, 33), (6, 1)])
def test_softmax_and_sum(shape: tuple[int, int], axis: int) -> None:
    x = normal(5, shape[0] * shape[1], scale=4.0)
    OneOp(x, lambda g, w, v: g.softmax(g.heads(v, shape[0]), axis)).check()
    OneOp(x, lambda g, w, v: g.sum(g.heads(v, shape[0]), axis)).check()


def test_softmax_of_nothing_is_zero() -> None:
    x = np.full((2, 20), -np.inf, np.float32)
    x[1, 3] = 0
    np.testing.assert_array_equal(OneOp(x, lambda g, w, v: g.softmax(v)).check().sum(1), [0, 1])


def test_broadcasts_slices_and_joins() -> None:
    x, n = normal(3, 4 * 12), normal(12)

    def body(g, w, v):
        h = g.heads(v, 4)
        a, b = h[:, :, 0:5], h[:, :, 5:12]
        joined = g.concat(b, a, axis=2)
        return g.where(g.relu(joined), joined * w.n, h + g.sum(h, 2)[:, :, None])

    OneOp(x, body, n=n).check()
    OneOp(x, lambda g, w, v: g.flat(g.heads(v, 4)[:, 1:3]) * 2.0).check()
    OneOp(x, lambda g, w, v: g.concat(g.heads(v, 4)[:, 3:4], g.heads(v, 4)[:, 0:2], axis=1)).check()
    OneOp(x, lambda g, w, v: g.silu(v[:, 0:24]) * v[:, 24:48]).check()


def test_gathered_and_put_rows() -> None:
    x = normal(6, 20)
    one = OneOp(x, lambda g, w, v: g.put_rows(v, g.step.media_rows, g.gather_rows(v * 3.0, g.step.media_rows)))
    one.limits = Limits(
        **{**one.limits.__dict__, "media": 3} if hasattr(one.limits, "__dict__") else _fields(one.limits, media=3)
    )
    one.check(step=one.step([6], media_rows=np.array([4, 1], np.int32)))


def _fields(limits: Limits, **changes: object) -> dict[str, object]:
    return {f: getattr(limits, f) for f in limits.__dataclass_fields__} | changes


@pytest.mark.parametrize("n", [1, 4, 32])
def test_hadamard(n: int) -> None:
    OneOp(normal(3, 96), lambda g, w, v: g.hadamard(v, n)).check()


def test_sinkhorn() -> None:
    OneOp(normal(5, 16), lambda g, w, v: g.sinkhorn(g.heads(v, 4), 5, 1e-6)).check()


@pytest.mark.parametrize("columns", [0, 3])
def test_mix(columns: int) -> None:
    x = normal(4, 5 * 40 + 5 * max(columns, 1))

    def body(g, w, v):
        weights = v[:, 200:]
        return g.mix(g.heads(weights, 5) if columns else weights, g.heads(v[:, :200], 5))

    OneOp(x, body).check()


@pytest.mark.parametrize("pair", ["adjacent", "halves"])
@pytest.mark.parametrize("at", ["start", "end"])
@pytest.mark.parametrize("inverse", [False, True])
def test_rope(pair: str, at: str, inverse: bool) -> None:
    freq = 1e4 ** (-np.arange(6) / 6)

    def body(g, w, v):
        return g.rope(g.heads(v, 3), g.angles(freq, mag=1.25), pair=pair, at=at, inverse=inverse)

    one = OneOp(normal(9, 3 * 20), body)
    one.check(step=one.step([4, 5], at=[100, 0]), rtol=1e-5)


@pytest.mark.parametrize("norm", ["sum", "softmax", "none"])
@pytest.mark.parametrize(("groups", "keep"), [(1, 1), (4, 2)])
def test_route(norm: str, groups: int, keep: int) -> None:
    x, bias = np.round(8 * np.abs(normal(7, 24))) / 8, np.round(8 * normal(24, seed=5)) / 8  # sums exact: true ties

    def weights(g, w, v):
        return g.route(v, w.bias, k=5, groups=groups, keep=keep, norm=norm, eps=1e-9, scale=2.5)[1]

    def ids(g, w, v):
        return g.embed(g.route(v, w.bias, k=5, groups=groups, keep=keep, norm=norm)[0], w.number)

    OneOp(x, weights, bias=bias).check()
    OneOp(x, ids, bias=bias, number=np.arange(24.0)[:, None]).check()


ROUNDED = {np.float32: 2e-6, np.float16: 2e-4}  # how far products with weights of a type are from exact ones


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize(("groups", "columns"), [(1, 32), (3, 32), (2, 128)])
@pytest.mark.parametrize("rows", [1, 15, 17, 64])
def test_linear(rows: int, groups: int, columns: int, kind: type[np.floating[Any]]) -> None:
    x, m, b = normal(6, groups * columns), normal(groups * rows, columns).astype(kind), normal(groups * rows)

    def body(g, w, v):
        return g.linear(g.heads(v, groups) if groups > 1 else v, w.m, w.b, w.s, groups=groups)

    OneOp(x, body, m=m, b=b, s=np.array([0.5])).check(rtol=ROUNDED[kind])


def test_linears_of_one_input() -> None:
    def body(g, w, v):
        return g.concat(g.linear(v, w.a), g.linear(v, w.b) * 2.0, g.linear(v, w.a.rows(3, 8)), axis=1)

    OneOp(normal(5, 40), body, a=normal(9, 40), b=normal(33, 40)).check()


@pytest.mark.parametrize("columns", [100, 4200])  # a gated activation is made in pieces of a row
def test_sixteen_bits_are_coded_by_what_makes_a_row(columns: int) -> None:
    m, one, other = (normal(n, columns, seed=n).astype(np.float16) for n in (33, 34, 35))

    def body(g, w, v):
        gated = g.silu(v) * g.rms_norm(v, w.norm, 1e-6)
        return g.concat(g.linear(gated, w.m), g.linear(g.rms_norm(v, w.norm, 1e-6), w.one), g.linear(v, w.other), axis=1)

    program = OneOp(normal(5, columns), body, m=m, one=one, other=other, norm=np.abs(normal(columns)))
    made = program.check(rtol=ROUNDED[np.float16])
    np.testing.assert_array_equal(program.cpu(program.step((5,)), fused=False), made)


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_experts(tokens: int, kind: type[np.floating[Any]]) -> None:
    x, m, b = normal(tokens, 32), normal(6, 20, 32).astype(kind), normal(6, 20, seed=9)
    down, scale = normal(6, 16, 20, seed=7).astype(kind), np.abs(normal(6, seed=8))

    def body(g, w, v):
        ids, p = g.route(g.sigmoid(v[:, 0:6]), k=3)
        up = g.silu(g.expert_linear(v, w.m, ids, w.b)) * g.expert_linear(v, w.m, ids)
        return g.mix(p, g.expert_linear(up, w.down, ids, None, w.scale))

    OneOp(x, body, m=m, b=b, down=down, scale=scale).check(rtol=ROUNDED[kind])


@pytest.mark.parametrize("tokens", [1, 17])
@pytest.mark.parametrize(("least", "most"), [(-1, -1), (4, 4), (-1, 5)])  # nobody is here, all want one, some are elsewhere
def test_experts_that_are_elsewhere_and_crowded_ones(tokens: int, least: int, most: int) -> None:
    ids = np.random.default_rng(tokens).integers(least, most, (tokens, 3), np.int32, endpoint=True)
    m, b = normal(6, 20, 64).astype(np.float16), normal(6, 20, seed=9)

    def body(g, w, v):
        _, p = g.route(g.sigmoid(v[:, 0:6]), k=3)
        return g.mix(p, g.expert_linear(v, w.m, g.embed(g.step.tokens, w.ids), w.b))

    made = OneOp(normal(tokens, 64), body, m=m, b=b, ids=ids).check(rtol=ROUNDED[np.float16])
    assert not made[(ids < 0).all(1)].any()


@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_pool(kind: str) -> None:
    OneOp(normal(9, 20), lambda g, w, v: g.pool(v, kind)).check(4, 1, 4)


@pytest.mark.parametrize("which", range(3))
def test_top_k(which: int) -> None:
    x = np.round(normal(4, 50), 1)
    number = np.arange(50.0)[:, None]

    def body(g, w, v):
        values, ids, lse = g.top_k(v, 7)
        return (values, g.embed(ids, w.number), lse)[which]

    OneOp(x, body, number=number).check()


def test_index_arithmetic() -> None:
    def body(g, w, v):
        row = g.embed(g.mod(g.step.index, 3), w.table)
        warm = g.affine(g.log(g.affine(g.floor(g.scale(g.step.index, 0.25)), 1.0, 1.0)), 0.5, 1.0)
        return v * row * g.reshape(warm, 1)

    one = OneOp(normal(8, 20), body, table=normal(3, 20))
    one.check(step=one.step([3, 5], at=[7, 0]))


def test_unfused_and_fused_are_one_arithmetic() -> None:
    def body(g, w, v):
        h = g.rms_norm(v)
        return g.linear(g.silu(g.linear(h, w.a)) * g.linear(h, w.b), w.c)

    one = OneOp(normal(6, 32), body, a=normal(64, 32), b=normal(64, 32), c=normal(20, 64))
    step = one.step([6])
    np.testing.assert_array_equal(one.cpu(step, fused=True), one.cpu(step, fused=False))


def test_an_op_without_a_kernel_is_named() -> None:
    one = OneOp(normal(2, 4), lambda g, w, v: v + v)
    (op,) = (o for o in one.program.ops if o.kind == "add")
    alien = type(op)("conv3d", op.inputs, op.outputs)
    program = type(one.program)("alien", (*one.program.ops[:-1], alien), one.program.outputs)
    with pytest.raises(BackendError, match="conv3d"):
        compile(program, one.source, one.limits)


def test_a_step_larger_than_planned_is_refused() -> None:
    one = OneOp(normal(3, 4), lambda g, w, v: v + v)
    made = compile(one.program, one.source, one.limits)
    with pytest.raises(ProgramError, match="planned for 3"):
        made.run(one.step([4]))


def test_a_page_that_is_not_there_is_refused() -> None:
    def body(g: Tracer, w, v):
        cache = g.paged("kv", k=(1, 8), v=(1, 8))
        g.kv_write(cache, g.heads(v, 1), g.heads(v, 1))
        return g.attention(g.heads(v, 1), [cache])

    one = OneOp(normal(3, 8), body)
    made = compile(one.program, one.source, one.limits)
    with pytest.raises(ProgramError, match="page 80 of 80"):
        made.run(one.step([3], pages={0: np.array([[80]], np.int32)}))
