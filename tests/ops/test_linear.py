"""The native matrix product, every weight type: bit for bit the arithmetic of `linear_truth`, in any cut."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ops.linear_truth import (
    FLOATS,
    QUANTISED,
    WORDS,
    code_words,
    decode_words,
    multiply_codes,
    multiply_floats,
    multiply_words,
    quantise,
    random_rows,
)
from ops.tiny import Memory
from tensormill.errors import BackendError
from tensormill.gguf import GGMLType
from tensormill.program import WeightSource
from tensormill.program.recipe import Recipe
from tensormill.quant import decode

native = pytest.importorskip("tensormill.backends.cpu._native", reason="the native module is not built")
from ops import linear_native  # noqa: E402
from tensormill.backends.cpu.weights import Weights  # noqa: E402

KINDS = [*FLOATS, *QUANTISED]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)


def columns_of(kind: GGMLType) -> tuple[int, ...]:
    """One block, an odd number of blocks, and more than one chunk of 512 inputs."""
    if kind in FLOATS:
        return (1, 33, 300, 640)
    return (kind.block, 3 * kind.block, 512 + kind.block)


def activations(tokens: int, columns: int, seed: int = 7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, columns)).astype(np.float32)
    x[:, ::11] *= 30  # outliers
    x[-1, : min(32, columns)] = 0  # a group of zeros
    return x


def truth(kind: GGMLType, rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    if kind in WORDS:
        return multiply_words(kind, rows, x)
    return (multiply_floats if kind in FLOATS else multiply_codes)(kind, rows, x)


def test_all_types_are_there():
    for kind in KINDS:
        linear_native.give_codebook(kind)
        assert native.linear_supported(kind), kind.name
        assert native.takes_codes(kind) == (kind not in FLOATS)
        assert native.takes_words(kind) == (kind in WORDS)


def test_activations_are_quantised_exactly():
    x = activations(5, 320)
    x[2, 32:64] = 1e-32  # under the threshold: zeros
    x[3, 0] = np.float32(1e-29)
    for mine, expected in zip(linear_native.quantise(x), quantise(x), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_halves_round_to_even():
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = 127, 0.5, 1.5, 2.5, -0.5, -1.5
    assert linear_native.quantise(x)[0][0, :6].tolist() == [127, 0, 2, 2, 0, -2]


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, *FLOATS], ids=lambda k: k.name)
def test_a_nan_reaches_the_output(kind):
    x = activations(6, 64)
    x[1, 40] = np.nan
    out = linear_native.Packed(kind, random_rows(kind, 16, 64, 1), 64)(x)
    assert np.isnan(out[1]).all()
    assert not np.isnan(out[[0, 2, 3, 4, 5]]).any()


@pytest.mark.parametrize("kind", WORDS, ids=lambda k: k.name)
@pytest.mark.parametrize("bits", [0x7FFF, 0xFFFF, 0x7FC1, 0xFFC1])
def test_a_nan_weight_reaches_the_output(kind, bits):
    """Whatever its bits: some would become a scale of zero where a scale is rounded up."""
    rows = random_rows(kind, 17, 64, 1)
    rows.view("<u2")[3, 5] = bits
    packed = linear_native.Packed(kind, rows, 64)
    for tokens in (1, 2, 17):
        out = packed(activations(tokens, 64))
        assert np.isnan(out[:, 3]).all()
        assert not np.isnan(np.delete(out, 3, 1)).any()
    assert np.isnan(packed.decode([3])[0, 5])


def test_a_matrix_too_wide_is_refused_by_name():
    wide = Recipe.whole("blk.0.ffn_down.weight", GGMLType.Q4_K, (16, 262144 + 256))
    with pytest.raises(BackendError, match=r"blk\.0\.ffn_down\.weight.* 262400 columns.* up to 262144"):
        Weights(WeightSource(Memory({}))).matrices(wide)


@by_kind
def test_product_is_exact(kind):
    for columns in columns_of(kind):
        for rows, tokens in ((1, 1), (15, 3), (17, 4), (33, 5), (48, 13)):
            blocks = random_rows(kind, rows, columns, rows)
            x = activations(tokens, columns)
            out = linear_native.Packed(kind, blocks, columns)(x)
            np.testing.assert_array_equal(out, truth(kind, blocks, x), err_msg=f"[{rows}, {columns}] T={tokens}")


@by_kind
def test_rows_decode_as_the_file_says(kind):
    for columns in columns_of(kind):
        blocks = random_rows(kind, 33, columns, 3)
        ids = [32, 0, 17, 15, 15]
        mine = linear_native.Packed(kind, blocks, columns).decode(ids)
        expected = decode_words(kind, blocks) if kind in WORDS else decode(kind, blocks)
        np.testing.assert_array_equal(mine, expected[ids])


@pytest.mark.parametrize("kind", WORDS, ids=lambda k: k.name)
def test_weights_lose_less_than_a_sixteen_thousandth_of_their_block(kind):
    """Half a code: the length of 64 inputs ÷ 46000 ÷ 2, or their largest ÷ 32767 ÷ 2, and the scale is rounded up by 2⁻⁸."""
    blocks = random_rows(kind, 20, 640, 11)
    values = decode(kind, blocks).reshape(20, 10, 64)
    lost = np.abs(linear_native.Packed(kind, blocks, 640).decode(range(20)).reshape(values.shape) - values).max(-1)
    largest, length = np.abs(values).max(-1), np.sqrt((values.astype(np.float64) ** 2).sum(-1))
    assert (lost <= np.maximum(length / 46000, largest / 32767) / 2 * (1 + 2**-7)).all()


def test_words_are_coded_exactly():
    x = activations(6, 300)
    x[2, 32:128] = 1e-32  # under the threshold: zeros
    x[3, 0] = np.float32(1e-29)
    x[4, 64:128] = 0
    x[4, 70] = -5  # alone: the largest code there is
    words, scales = linear_native.code_words(x)
    expected_words, expected_scales = code_words(x)
    np.testing.assert_array_equal(words[:, :320], expected_words.reshape(6, -1))
    np.testing.assert_array_equal(scales[:, :5], expected_scales)
    assert words[4, 70] == -32767


def test_sums_of_words_do_not_overflow():
    """Rows that are alike as much as can be: each sum is as long as two vectors of 64 codes allow."""
    rng = np.random.default_rng(12)
    for values in (np.ones(64), rng.standard_normal(64), np.eye(64)[5], np.eye(64)[5] + np.eye(64)[6]):
        rows = np.ascontiguousarray(np.stack([values, -values]).astype("<f2")).view(np.uint8)
        x = rows.view("<f2").astype(np.float32)
        np.testing.assert_array_equal(linear_native.Packed(GGMLType.F16, rows, 64)(x), truth(GGMLType.F16, rows, x))
        np.testing.assert_allclose(truth(GGMLType.F16, rows, x), x @ x.T, rtol=2e-4)


@by_kind
def test_a_token_does_not_know_its_neighbours(kind):
    columns = columns_of(kind)[-1]
    matrix = linear_native.Packed(kind, random_rows(kind, 33, columns, 4), columns)
    x = activations(64, columns)
    together = matrix(x)
    for tokens in (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 31):
        np.testing.assert_array_equal(matrix(x[:tokens]), together[:tokens], err_msg=f"T={tokens}")
    np.testing.assert_array_equal(np.concatenate([matrix(row[None]) for row in x]), together)


@pytest.mark.parametrize("tokens", [8, 11, 16])  # groups of tokens fit; all of them, but not all inputs
@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q2_K, GGMLType.Q4_K])  # a scale for each 32 inputs, for each 16
def test_rows_too_long_for_the_scratch_are_done_in_pieces(kind, tokens):
    columns = 256 * 700
    matrix = linear_native.Packed(kind, random_rows(kind, 17, columns, 5), columns)
    x = activations(tokens, columns)
    np.testing.assert_array_equal(matrix(x), np.concatenate([matrix(row[None]) for row in x]))


@by_kind
@pytest.mark.parametrize("tokens", [3, 9, 16, 19])
def test_gather_scatter_and_ranges_of_panels(kind, tokens):
    columns = columns_of(kind)[1]
    blocks = random_rows(kind, 50, columns, 5)
    matrix = linear_native.Packed(kind, blocks, columns)
    x = activations(12, columns)
    rng = np.random.default_rng(6)
    x_rows, out_rows = rng.integers(0, 12, tokens), rng.permutation(20)[:tokens]
    expected = np.full((20, 53), -7, np.float32)
    expected[out_rows, :50] = matrix(x)[x_rows]
    out = np.full((20, 53), -7, np.float32)
    for panels in ((1, 2), (0, 1), (2, 4)):
        matrix(x, x_rows, out_rows, out, panels)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_1, GGMLType.Q4_K, GGMLType.Q6_K, GGMLType.IQ3_XXS])
def test_many_tokens_and_panels_are_swept_in_blocks(kind):
    """More tokens than a block of them, more panels than a sweep, an odd panel at its end, rows out of order."""
    columns, rows, tokens = 512 + kind.block, 16 * 34 + 5, 301
    matrix = linear_native.Packed(kind, random_rows(kind, rows, columns, 9), columns)
    x = activations(40, columns)
    rng = np.random.default_rng(10)
    x_rows, out_rows = rng.integers(0, 40, tokens), rng.permutation(tokens)
    out = np.full((tokens, rows), np.nan, np.float32)
    matrix(x, x_rows, out_rows, out)
    alone = np.concatenate([matrix(row[None]) for row in x])
    np.testing.assert_array_equal(out[out_rows], alone[x_rows])


_DIGEST = """
import hashlib, sys
import numpy as np
from ops.test_linear import KINDS, activations, columns_of, linear_native, native, random_rows
assert native.isa() == sys.argv[1]
for kind in KINDS:
    digest = hashlib.sha256()
    for columns in columns_of(kind):
        matrix = linear_native.Packed(kind, random_rows(kind, 33, columns, 8), columns)
        for tokens in (1, 2, 4, 12, 23, 40):
            digest.update(matrix(activations(tokens, columns)).tobytes())
    print(kind.name, digest.hexdigest())
"""


def run_with(isa: str, *words: str) -> str:
    """What Python prints with this instruction set; skips where there is none."""
    tests = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{tests}:{tests.parent / 'src'}", "TENSORMILL_ISA": isa}
    run = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    if "TENSORMILL_ISA asks for" in run.stderr and "sums are not those" not in run.stderr:
        pytest.skip(run.stderr.strip().splitlines()[-1])
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr
    return run.stdout


@pytest.mark.skipif(native.isa() in ("avx2", "neon"), reason="this processor has one instruction set only")
@pytest.mark.parametrize("isa", ["avx2", "amx", "amx-emulated"])
def test_instruction_sets_agree(isa):
    assert run_with(isa, "-c", _DIGEST, isa) == run_with("avx512", "-c", _DIGEST, "avx512")


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["avx512", "amx-emulated"])
@pytest.mark.skipif("TENSORMILL_ISA" in os.environ, reason="this is one of those runs")
def test_all_of_this_holds_for_other_sets(isa):
    run_with(isa, "-c", f"from ops import linear_native as n; assert n.native.isa() == {isa!r}")
    assert " passed" in run_with(isa, "-m", "pytest", "-p", "no:cacheprovider", "-k", "not instruction_sets_agree", __file__)
