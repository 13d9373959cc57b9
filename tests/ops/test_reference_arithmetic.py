"""Norms, element-wise functions, rotations and quantised activations of the reference against plain statements."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tensormill.backends.reference.arithmetic import layer_norm, rms_norm, softmax, unary, where
from tensormill.backends.reference.ending import codes, quantise, top_k
from tensormill.backends.reference.frame import Frame
from tensormill.backends.reference.rotary import angles, rope
from tensormill.backends.reference.routing import sinkhorn
from tensormill.program import Run, build_step
from tensormill.program.unary import KINDS

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("over", ["mean", "sum"])
def test_rms_norm(over: str) -> None:
    x, w = normal(4, 2, 6), normal(2, 6)
    got = rms_norm(x, w, eps=0.1, over=over)
    for t in range(4):
        for g in range(2):
            squares = sum(float(v) ** 2 for v in x[t, g]) / (6 if over == "mean" else 1)
            np.testing.assert_allclose(got[t, g], x[t, g] / math.sqrt(squares + 0.1) * w[g], rtol=1e-5)


def test_layer_norm() -> None:
    x, w, b = normal(4, 6), normal(6), normal(6)
    got = layer_norm(x, w, b, eps=0.1)
    for t in range(4):
        mean = sum(map(float, x[t])) / 6
        var = sum((float(v) - mean) ** 2 for v in x[t]) / 6
        np.testing.assert_allclose(got[t], (x[t] - mean) / math.sqrt(var + 0.1) * w + b, rtol=1e-4, atol=1e-6)


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


SCALAR: dict[str, Callable[[float], float]] = {
    "affine": lambda x: 1.5 * x + 0.25,
    "clamp": lambda x: max(1.5, min(x, 2.5)),
    "silu": lambda x: x * logistic(x),
    "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "gelu_quick": lambda x: x * logistic(1.702 * x),
    "relu": lambda x: x if x > 0 else 0.0,
    "relu2": lambda x: x * x if x > 0 else 0.0,
    "sigmoid": logistic,
    "tanh": math.tanh,
    "exp": math.exp,
    "log": lambda x: math.log(abs(x)),
    "sqrt": lambda x: math.sqrt(abs(x)),
    "softplus": lambda x: x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x)),
    "floor": math.floor,
    "mod": lambda x: x - 1.5 * math.floor(x / 1.5),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_unary(kind: str, dtype: type) -> None:
    xs = np.array([-87, -20, -3.3, -1, -1e-3, 0, 1e-4, 0.5, 1, 2.2, 3.75, 30, 88], dtype)
    xs = np.abs(xs) + dtype(1e-3) if kind in ("log", "sqrt") else xs
    a, b = (1.5, 2.5) if kind == "clamp" else (1.5, 0.25)
    with np.errstate(over="raise", invalid="raise"):
        got = unary(xs, kind=kind, a=a, b=b)
    assert got.dtype == dtype
    expected = [SCALAR[kind](float(x)) for x in xs]
    tight = 2e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(got, expected, rtol=tight, atol=2e-6 if dtype is np.float32 and "gelu" in kind else tight)


def test_an_index_stays_whole_under_mod_alone() -> None:
    index = np.array([0, 5, 16777217], np.int32)
    assert unary(index, kind="mod", a=4.0, b=0.0).tolist() == [0, 1, 1]
    assert unary(index, kind="mod", a=4.0, b=0.0).dtype == np.int32
    np.testing.assert_allclose(unary(index[:2], kind="affine", a=0.3, b=1.0), [1.0, 2.5])


def test_softmax_and_where_do_not_spread_poison() -> None:
    x = np.array([[0.0, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf]], np.float32)
    e = math.e
    np.testing.assert_allclose(softmax(x, axis=1), [[1 / (1 + e), 0, e / (1 + e)], [0, 0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(where(np.array([1, 0]), np.array([2, np.nan]), np.array([np.nan, 3])), [2, 3])


def test_angles_of_components_and_of_compressed_entries() -> None:
    step = build_step([Run(range(5), past=6)], components=3, ratios=[4])
    step.positions[1] += 100
    freq, comp = np.float32([1.0, 0.1]), np.array([0, 1], np.int32)
    got = angles(Frame(step), step.positions, freq=freq, comp=comp, mag=0.5, rows="T")
    for t in range(5):
        for i, position in enumerate((6 + t, 106 + t)):
            theta = float(np.float32(position) * freq[i])
            np.testing.assert_allclose(got[t, i], [0.5 * math.cos(theta), 0.5 * math.sin(theta)], atol=1e-7)
    entry = angles(Frame(step), step.positions, freq=freq, comp=0 * comp, mag=1.0, rows="C4")
    np.testing.assert_allclose(entry[0], [[math.cos(4), math.sin(4)], [math.cos(0.4), math.sin(0.4)]], atol=1e-6)


@pytest.mark.parametrize("pair", ["adjacent", "halves"])
@pytest.mark.parametrize("at", ["start", "end"])
def test_rope_turns_pairs_and_back(pair: str, at: str) -> None:
    x, theta = normal(3, 2, 10), normal(3, 3)
    cs = np.stack([np.cos(theta), np.sin(theta)], axis=-1)
    got = rope(x, cs, pair=pair, at=at, inverse=False)
    first = 0 if at == "start" else 4
    expected = x.astype(complex)
    for i in range(3):
        a, b = (first + 2 * i, first + 2 * i + 1) if pair == "adjacent" else (first + i, first + 3 + i)
        turned = (x[:, :, a] + 1j * x[:, :, b]) * np.exp(1j * theta[:, None, i])
        expected[:, :, a], expected[:, :, b] = turned.real, turned.imag
    np.testing.assert_allclose(got, expected.real, atol=1e-6)
    np.testing.assert_allclose(rope(got, cs, pair=pair, at=at, inverse=True), x, atol=1e-6)


def test_sinkhorn_balances_both_sides() -> None:
    x = normal(5, 4, 4)
    got = sinkhorn(x, iters=60, eps=1e-6)
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-4)
    np.testing.assert_allclose(got.sum(2), 1, atol=1e-4)
    once = np.exp(x[0]) / np.exp(x[0]).sum(1, keepdims=True) + 0.1
    np.testing.assert_allclose(sinkhorn(x, iters=1, eps=0.1)[0], once / (once.sum(0) + 0.1), rtol=1e-5)


def test_top_k_best_first_equal_lowest() -> None:
    x = np.float32([[1, 3, 3, 0], [800, -800, 800, 801]])
    values, ids, lse = top_k(x, k=3)
    assert ids.tolist() == [[1, 2, 0], [3, 0, 2]] and values[1].tolist() == [801, 800, 800]
    expected = [math.log(sum(map(math.exp, (1, 3, 3, 0)))), 801 + math.log(1 + 2 / math.e)]
    np.testing.assert_allclose(lse, expected, rtol=1e-6)


def test_quantise_rounds_half_to_even_by_block() -> None:
    x = np.zeros((1, 64), np.float32)
    x[0, :4] = [127, 0.5, 1.5, -2.5]
    integers, scale = codes(x)
    assert integers[0, :4].tolist() == [127, 0, 2, -2] and scale.tolist() == [[1.0, 0.0]]
    y = normal(3, 2, 96)
    blocks, largest = y.reshape(3, 2, 3, 32), np.abs(y).reshape(3, 2, 3, 32).max(-1, keepdims=True)
    integers = codes(y)[0].reshape(blocks.shape)
    assert (np.abs(integers - blocks * 127 / largest) <= 0.5001).all()
    plain = ((integers * largest / 127 - blocks) ** 2).sum(-1)
    fitted = ((quantise(y).reshape(blocks.shape) - blocks) ** 2).sum(-1)
    assert (fitted <= plain * 1.0001).all() and fitted.sum() < plain.sum()
