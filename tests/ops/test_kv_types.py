"""KV types of pages: both backends round alike, one set of bits however a sequence is fed, and blocks are refused where they
do not fit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ops.cpu_driver import CPUDriver, OneOp, normal
from ops.driver import Feed
from ops.test_cpu_attention import paged, width
from ops.test_reference_steps import LENGTH, MODELS, texts
from tensormill.backends import cpu, reference
from tensormill.errors import BackendError
from tensormill.program import Run, Selected, build_step
from tensormill.program.kv import rounded

TYPES = ("f16", "bf16", "q8_0", "q4_0")
# Of the largest number: float32's rounding, and that of queries and of probabilities times scales to 15 bits.
CLOSE = {"bf16": 2e-6, "f16": 2**-14, "q8_0": 2**-14, "q4_0": 2**-14}
ODD = np.array([np.nan, np.inf, -np.inf, 3e38, 1e-42, -0.0, 65504.0, 1e7], np.float32)


def one_op(body, columns: int, kv_type: str, rows: int = 70, **options: object) -> OneOp:
    x = normal(rows, columns) * np.exp2(np.random.default_rng(2).integers(-6, 1, (rows, 1))).astype(np.float32)
    one = OneOp(x, body, **options)
    one.limits = replace(one.limits, kv_type=kv_type)
    return one


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("shape", [(4, 4, 32, 32), (7, 1, 64, 96), (18, 2, 128, 32)])
@pytest.mark.parametrize("page", [8, 64])
def test_both_backends_round_alike(kv_type: str, shape: tuple[int, int, int, int], page: int) -> None:
    one_op(paged(*shape), width(*shape), kv_type, page=page).check(57, 1, 12, rtol=CLOSE[kv_type])


@pytest.mark.parametrize("kv_type", TYPES)
@pytest.mark.parametrize("v_dim", [0, 24, 64])
def test_keys_that_are_values(kv_type: str, v_dim: int) -> None:
    def body(g, w, x):
        cache = g.paged("kv", k=(1, 96))
        g.kv_write(cache, g.heads(x[:, 480:576], 1))
        return g.attention(g.heads(x[:, 0:480], 5), [cache], scale=0.1, v_dim=v_dim)

    one_op(body, 576, kv_type, rows=30).check(21, 9)


@pytest.mark.parametrize("kv_type", TYPES)
def test_an_indexer_scores_what_was_stored(kv_type: str) -> None:
    def body(g, w, x):
        q, k = g.heads(x[:, 0:128], 4), g.heads(x[:, 128:160], 1)
        raw, keys = g.paged("raw", k=(1, 32)), g.paged("keys", k=(1, 32))
        g.kv_write(raw, k)
        g.kv_write(keys, k)
        ids = g.indexer(q, x[:, 0:4], keys, k=5)
        return g.attention(q, [Selected(raw, ids)])

    one_op(body, 160, kv_type, rows=40).check(33, 7)


@pytest.mark.parametrize("kv_type", TYPES)
def test_decode_and_chunks_give_the_bits_of_a_prefill(kv_type: str) -> None:
    n, shape = 700, (9, 3, 64, 64)
    one = one_op(paged(*shape), width(*shape), kv_type, rows=n, page=64)
    pages = {0: np.random.default_rng(3).permutation(np.arange(1, 80))[:12].tolist()}

    def feed(cuts: list[int], threads: int) -> np.ndarray:
        made = cpu.compile(one.program, one.source, one.limits, threads=threads)
        made.poison()
        rows = []
        for a, b in zip([0, *cuts], [*cuts, n], strict=True):
            run = Run(np.arange(a, b), a, pages=pages, slot=1, want=range(b - a))
            rows.append(np.array(made.run(build_step([run]))["out"]))
        return np.concatenate(rows)

    whole = feed([], 1)
    assert np.isfinite(whole).all()
    for cuts, threads in (([], 2), ([64, 65, 513, *range(600, 606), 690], 3)):
        np.testing.assert_array_equal(feed(cuts, threads).view(np.int32), whole.view(np.int32))


@pytest.mark.parametrize("kv_type", TYPES)
def test_numbers_at_the_edge(kv_type: str) -> None:
    """A single visible row is its own average: what comes out is what was stored, on both backends, NaN for NaN."""

    def body(g, w, x):
        cache = g.paged("kv", k=(1, 32), v=(1, 64), window=1)
        g.kv_write(cache, g.heads(x[:, 0:32], 1), g.heads(x[:, 32:96], 1))
        return g.attention(g.heads(x[:, 96:128], 1), [cache])

    x = normal(40, 128)
    x[:8, 40], x[10:18, 70] = ODD, ODD
    x[20, 32:64], x[21, 32:96] = 0, np.linspace(-1, 1, 64)
    x[22, 32:64] = np.tile([7.5, -7.5, 63.5, -127], 8)  # ties
    one = OneOp(x, body)
    one.limits = replace(one.limits, kv_type=kv_type)
    want = rounded(x[:, 32:96].reshape(40, 1, 64), kv_type).reshape(40, 64)
    steps = [build_step([Run(np.arange(i, i + 1), 0, pages={0: [3], 1: [3]}, slot=1, want=[0])]) for i in range(40)]
    for backend in (cpu, reference):
        made = backend.compile(one.program, one.source, one.limits)
        got = np.concatenate([np.array(made.run(step)["out"]).reshape(1, 64) for step in steps])
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("backend", [cpu, reference])
def test_heads_that_are_no_whole_blocks_are_refused(backend) -> None:
    one = one_op(paged(2, 2, 48, 32), width(2, 2, 48, 32), "q8_0")
    with pytest.raises(BackendError, match=r"heads of 48 numbers.*blocks of 32.*f16"):
        backend.compile(one.program, one.source, one.limits)


@pytest.mark.parametrize("kv_type", TYPES)
def test_a_copied_page_reads_as_its_source(kv_type: str) -> None:
    shape = (4, 2, 32, 32)
    one = one_op(paged(*shape), width(*shape), kv_type, rows=40)
    step = one.step([20])

    def second(made, copy: bool) -> np.ndarray:
        table = step.pages[0][0].tolist()
        made.run(step)
        if copy:
            made.copy_page(0, table[0], 79)
            table[0] = 79
        return np.array(made.run(build_step([Run(np.arange(20, 21), 20, pages={0: table}, slot=1, want=[0])]))["out"])

    for backend in (cpu, reference):
        make = backend.compile(one.program, one.source, one.limits)
        np.testing.assert_array_equal(second(make, False), second(backend.compile(one.program, one.source, one.limits), True))


@pytest.mark.parametrize("name", ["llama", "llama-slide"])
def test_whole_models_chunk_by_chunk_in_bfloat16(name: str) -> None:
    (tokens,) = texts(name, 1)
    whole, parts = CPUDriver(MODELS[name](), kv_type="bf16"), CPUDriver(MODELS[name](), kv_type="bf16", seed=5)
    t, u = whole.track(), parts.track()
    whole.feed(Feed(t, tokens))
    for i in range(0, LENGTH, 5):
        parts.feed(Feed(u, tokens[i : i + 5]))
    for i in range(LENGTH):
        np.testing.assert_array_equal(t.logits[i].view(np.int32), u.logits[i].view(np.int32))


@pytest.mark.parametrize("keys", [True, False])
@pytest.mark.parametrize("width", [64, 128])
def test_rows_of_integers_are_as_close_as_float16(width: int, keys: bool) -> None:
    """As vectors, on the average; keys also where one number of a row stands out."""
    x = normal(2000, width) * np.exp2(np.random.default_rng(5).uniform(-8, 8, (2000, 1))).astype(np.float32)
    for rows in (x, np.where(np.arange(width) == 5, 30 * x, x)) if keys else (x,):
        error, half = rounded(rows, "f16", keys=keys) - rows, rows.astype(np.float16).astype(np.float32) - rows
        size = np.linalg.norm(rows, axis=1)
        assert (np.linalg.norm(error, axis=1) / size).mean() < (np.linalg.norm(half, axis=1) / size).mean()
