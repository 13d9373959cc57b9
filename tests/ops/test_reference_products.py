"""Each product of the reference against its statement as plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from ops.tiny import Memory
from tensormill.backends.reference.lazy import Lazy
from tensormill.backends.reference.products import expert_linear, hadamard, linear, mix
from tensormill.backends.reference.rows import concat, cut, embed, gather_rows, put_rows, reshape
from tensormill.program import Recipe, WeightSource

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def test_linear_is_a_dot_product_a_row() -> None:
    x, w, b = normal(3, 2, 5), normal(4, 5), normal(4)
    got = linear(x, w, b, np.float32([2.5]), groups=1)
    for t in range(3):
        for j in range(2):
            for o in range(4):
                dot = sum(float(x[t, j, i]) * float(w[o, i]) for i in range(5))
                assert got[t, j, o] == pytest.approx(2.5 * dot + float(b[o]), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("stacked", [False, True])
def test_groups_are_blocks_of_the_diagonal(stacked: bool) -> None:
    x, w, b = normal(3, 2, 5), normal(8, 5), normal(8)
    got = linear(x, w.reshape(2, 4, 5) if stacked else w, b, None, groups=2)
    for g in range(2):
        np.testing.assert_allclose(got[:, g], x[:, g] @ w[4 * g : 4 * g + 4].T + b[4 * g : 4 * g + 4], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("per_place", [False, True])
@pytest.mark.parametrize("scales", [None, 1, 3])
def test_expert_linear_is_one_matrix_a_place(per_place: bool, scales: int | None) -> None:
    ids = np.array([[0, 2], [2, -1], [-1, -1], [1, 0]], np.int32)
    x, w, b = normal(4, 2, 5) if per_place else normal(4, 5), normal(3, 6, 5), normal(3, 6)
    scale = None if scales is None else normal(scales)
    got = expert_linear(x, w, ids, b, scale)
    for t in range(4):
        for j in range(2):
            e = ids[t, j]
            row = x[t, j] if per_place else x[t]
            factor = 1.0 if scale is None else scale[e if scales == 3 else 0]
            expected = np.zeros(6) if e < 0 else w[e] @ row * factor + b[e]
            np.testing.assert_allclose(got[t, j], expected, rtol=1e-5, atol=1e-6)


def test_hadamard_by_parity_of_common_bits() -> None:
    x = normal(3, 16)
    signs = np.array([[(-1) ** (i & j).bit_count() for i in range(8)] for j in range(8)]) / np.sqrt(8)
    got = hadamard(x, n=8)
    np.testing.assert_allclose(got.reshape(3, 2, 8), x.reshape(3, 2, 8) @ signs, atol=1e-6)
    np.testing.assert_allclose(hadamard(got, n=8), x, atol=1e-6)


def test_mix_sums_over_m() -> None:
    x, one, many = normal(3, 4, 5), normal(3, 4), normal(3, 4, 2)
    np.testing.assert_allclose(mix(one, x), np.einsum("tm,tmd->td", one, x), atol=1e-5)
    np.testing.assert_allclose(mix(many, x), np.einsum("tmj,tmd->tjd", many, x), atol=1e-5)


def test_embed_takes_rows_and_none() -> None:
    table, ids = normal(7, 3), np.array([[6, -1], [0, 6]], np.int32)
    got = embed(ids, table)
    assert (got[0, 0] == table[6]).all() and (got[1, 0] == table[0]).all() and (got[0, 1] == 0).all()


def test_lazy_weights_are_the_whole_ones() -> None:
    file = Memory({"table": (7, 4), "stack": (5, 6, 4)})
    source = WeightSource(file)
    table = Recipe.whole("table", file.tensors["table"].type, (7, 4)).rows(1, 7).cols(1, 3)
    ids = np.array([5, -1, 0, 5], np.int32)
    np.testing.assert_array_equal(embed(ids, Lazy(source, table, np.float32)), embed(ids, source.float32(table)))
    stack = Recipe.whole("stack", file.tensors["stack"].type, (5, 6, 4)).rows(2, 5)
    x, chosen = normal(3, 4), np.array([[4, 0], [1, -1], [4, 2]], np.int32)
    whole = file.arrays["stack"][:, 2:5]
    np.testing.assert_array_equal(source.float32(stack), whole)
    lazy = expert_linear(x, Lazy(source, stack, np.float32), chosen, None, None)
    np.testing.assert_array_equal(lazy, expert_linear(x, whole, chosen, None, None))


def test_rows_move_without_arithmetic() -> None:
    x, y, rows = normal(5, 3), normal(2, 3), np.array([3, 1], np.int32)
    poisoned = x.copy()
    poisoned[[1, 3]] = np.nan
    replaced = put_rows(poisoned, rows, y, add=False)
    np.testing.assert_array_equal(gather_rows(replaced, rows), y)
    np.testing.assert_array_equal(gather_rows(replaced, np.array([0, 2, 4])), x[[0, 2, 4]])
    np.testing.assert_array_equal(put_rows(x, np.array([1, 1]), y, add=True)[1], x[1] + y[0] + y[1])
    wide = reshape(normal(5, 6), shape=("T", 2, 3))
    np.testing.assert_array_equal(concat(cut(wide, axis=2, start=0, stop=1), cut(wide, axis=2, start=1, stop=3), axis=2), wide)
