"""RoPE's angles: every kind of scaling is resolved here, at trace time, into one frequency a pair and one magnitude.

Kinds: none, linear, YaRN, llama-3's table (`rope_freqs`), LongRoPE's pair of tables (`rope_factors_long`, `_short`).
The rotation itself is the op `rope`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tensormill.errors import ModelError
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

Freq = npt.NDArray[np.float64]
SCALINGS = ("none", "linear", "yarn", "longrope")


def angles(
    g: Tracer,
    w: Scope,
    c: Hyper,
    *,
    base: float | None = None,
    rot: int | None = None,
    scaled: bool = True,
    mag: float | None = None,
) -> Value:
    """cos and sin for each token, [T, rot/2, 2], from the file's `rope.*` keys and tables (`w`: the root scope).

    `base` and `rot` replace the file's; `scaled=False` leaves out every scaling (layers trained without);
    `mag` replaces YaRN's magnitude.
    """
    n = rot or c.rot
    freq = plain(base or freq_base(c), n)
    if not scaled:
        return g.angles(freq)
    divisors = factors(g, w, c, n // 2)
    kind, factor = scaling(c)
    if kind == "yarn":
        freq = yarn(c, freq / divisors, factor, base or freq_base(c))
        return g.angles(freq, mag=yarn_magnitude(c, factor) if mag is None else mag)
    return g.angles(freq / divisors / factor, mag=c.number("rope.scaling.attn_factor", 1.0, least=0.0) if mag is None else mag)


def freq_base(c: Hyper, key: str = "rope.freq_base", default: float = 10000.0) -> float:
    """The base of the geometric row of frequencies."""
    base = c.number(key, default)
    if base <= 0:
        raise c.odd(key, "a number above 0")
    return base


def plain(base: float, rot: int) -> Freq:
    """base^(−2i/rot) for each of rot/2 pairs, radians a position."""
    exponents: Freq = -2.0 * np.arange(rot // 2) / rot
    freq: Freq = np.power(base, exponents)
    return freq


def scaling(c: Hyper) -> tuple[str, float]:
    """Kind and factor; files without a kind mean linear, a factor of 0 or a kind of none means 1."""
    kind = c.text("rope.scaling.type", "linear")
    if kind not in SCALINGS:
        raise c.odd("rope.scaling.type", f"one of {', '.join(SCALINGS)}")
    key = "rope.scaling.factor" if "rope.scaling.factor" in c else "rope.scale_linear"
    factor = c.number(key, 1.0, least=0.0)
    return kind, 1.0 if kind == "none" or factor == 0 else factor


def factors(g: Tracer, w: Scope, c: Hyper, pairs: int) -> Freq | float:
    """What divides each pair's frequency: the file's table for this context length, or 1."""
    tables = {name: g.numbers(w[name]) for name in ("rope_freqs", "rope_factors_long", "rope_factors_short") if name in w}
    if not tables:
        return 1.0
    name = "rope_freqs"
    if "rope_factors_long" in tables and "rope_factors_short" in tables:
        original = c.whole("rope.scaling.original_context_length", c.context)
        name = "rope_factors_long" if c.context > original else "rope_factors_short"
    table = tables.get(name)
    if table is None or table.shape != (pairs,) or not (table > 0).all():
        found = "missing" if table is None else f"{list(table.shape)}, {table[:4].tolist()}"
        raise ModelError(f"the tensor {name}.weight is {found}; expected {pairs} numbers above 0, one a rotated pair")
    return table.astype(np.float64)


def yarn(c: Hyper, freq: Freq, factor: float, base: float) -> Freq:
    """YaRN: slow pairs are interpolated, fast ones kept, with a linear ramp between the two bounds (arXiv 2309.00071)."""
    n = 2 * len(freq)
    original = c.whole("rope.scaling.original_context_length", c.whole("context_length", least=1), least=1)

    def pair_that_turns(times: float) -> float:
        return n * math.log(original / (times * 2 * math.pi)) / (2 * math.log(base))

    fast = c.number("rope.scaling.yarn_beta_fast", 32.0, least=1e-6)
    slow = c.number("rope.scaling.yarn_beta_slow", 1.0, least=1e-6)
    low, high = max(0.0, math.floor(pair_that_turns(fast))), min(n - 1.0, math.ceil(pair_that_turns(slow)))
    ramp = 1.0 - np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0.0, 1.0)
    mixed: Freq = freq / factor * (1.0 - ramp) + freq * ramp
    return mixed


def yarn_magnitude(c: Hyper, factor: float) -> float:
    """How much longer YaRN makes the rotated part: 1 + 0.1·ln(factor), over the same with the model's log multiplier."""
    times = c.number("rope.scaling.attn_factor", 1.0, least=0.0)
    log_multiplier = 10.0 * c.number("rope.scaling.yarn_log_multiplier", 0.0)  # stored times 0.1
    return times * magnitude(factor, 1.0) / (magnitude(factor, log_multiplier) if log_multiplier else 1.0)


def magnitude(factor: float, m: float) -> float:
    """1 + 0.1·m·ln(factor); 1 where nothing is stretched."""
    return 1.0 + 0.1 * m * math.log(factor) if factor > 1 else 1.0
