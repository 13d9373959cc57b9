"""Every weight type: the CPU backend's logits are no farther from the dequantised model's than llama.cpp's are.

Of each file (`quantised.py`) the KL divergence from the reference backend's logits, which run on dequantised float32 weights,
is taken at 512 positions; goldens have llama.cpp's for the same file. The statistic is the ratio of the means, ours to its,
with the standard error of a ratio of paired means over positions. It must not be above 1. Only for types whose activations
both engines round alike does chance decide; there four files are taken, and up to two standard errors above 1 are a tie.

    PYTHONPATH=src:tests python tests/models/test_quantised.py      prints the table
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from models import quantised
from models.driver import Driver
from tensormill.backends import cpu, reference
from tensormill.evals import Divergence
from tensormill.gguf import GGMLType

GOLDENS = Path(__file__).parent.parent / "goldens" / "quantised.npz"
CHUNK = 128


@dataclass(frozen=True)
class Measured:
    """KL divergences at the same positions of all files of a type, and where the likeliest token is the true one."""

    ours: np.ndarray
    its: np.ndarray
    same: np.ndarray
    same_its: np.ndarray

    @property
    def ratio(self) -> float:
        return float(self.ours.mean() / self.its.mean())

    @property
    def error(self) -> float:
        """The ratio's standard error."""
        return float((self.ours - self.ratio * self.its).std(ddof=1) / len(self.its) ** 0.5 / self.its.mean())


@cache
def goldens() -> dict[str, np.ndarray]:
    with np.load(GOLDENS) as saved:
        return dict(saved)


@cache
def measured(kind: GGMLType) -> Measured:
    found = Divergence()
    for number in quantised.numbers(kind):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tiny.gguf"
            sha = quantised.write(kind, number, path)
            assert sha == str(goldens()[f"{kind.name}.{number}.sha256"]), "the writer changed: make the goldens again"
            ids = quantised.tokens(kind, number)
            logits = []
            for backend in (reference, cpu):
                with Driver(path, backend.compile, CHUNK, context=len(ids)) as driver:
                    logits.append(driver.logits(ids, CHUNK))
        found.add(*logits)
    its, same = (
        np.concatenate([goldens()[f"{kind.name}.{n}.{key}"] for n in quantised.numbers(kind)]) for key in ("kl", "same")
    )
    return Measured(found.kl, its.astype(np.float64), found.same_top, same)


@pytest.mark.parametrize("kind", quantised.TYPES, ids=lambda k: k.name)
def test_not_farther_from_the_truth_than_llama_cpp(kind: GGMLType) -> None:
    m = measured(kind)
    assert len(m.ours) >= 256 and 0 < m.its.mean() < 0.05, "the golden shows nothing"
    tie = 2 * m.error if kind in quantised.ROUNDED_ALIKE else 0.0
    assert m.ratio <= 1 + tie, f"KL is {m.ratio:.3f} ± {m.error:.3f} of llama.cpp's"


def test_where_chance_decides_it_favours_nobody() -> None:
    """All types that are rounded alike together: a small bias would show here."""
    parts = [measured(kind) for kind in quantised.ROUNDED_ALIKE]
    mean = np.mean([m.ratio for m in parts])
    error = np.sqrt(np.sum([m.error**2 for m in parts])) / len(parts)
    assert mean <= 1 + 2 * error, f"KL is {mean:.4f} ± {error:.4f} of llama.cpp's"


@pytest.mark.parametrize(("kind", "most"), [(GGMLType.F16, 0.2), (GGMLType.BF16, 0.005)], ids=["F16", "BF16"])
def test_sixteen_bits_are_far_nearer_than_llama_cpp(kind: GGMLType, most: float) -> None:
    """It rounds activations to the weights' type; here weights and activations are 16-bit codes, 13 bits of mantissa."""
    assert measured(kind).ratio < most


def table() -> str:
    """One line a type, in Markdown."""
    lines = ["| type | mean KL | llama.cpp's | ratio | same top | llama.cpp's |", "|---|---|---|---|---|---|"]
    for kind in quantised.TYPES:
        m = measured(kind)
        share = f"{m.same.mean():.1%} | {m.same_its.mean():.1%}"
        lines.append(f"| {kind.name} | {m.ours.mean():.1e} | {m.its.mean():.1e} | {m.ratio:.3f} ± {m.error:.3f} | {share} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
