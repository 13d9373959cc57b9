"""The sharding rules, executed: strips of random inputs on 2 or 3 ranks give what one rank gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ops import sketches
from ops.ranks import Ranks
from ops.tiny import Model
from tensormill.backends.reference import compile
from tensormill.gguf import GGMLType
from tensormill.program import Limits, Op, Recipe, Run, Tracer, Value, build_step
from tensormill.program.sharding import FULL, PART, RULES, State, own, rule, split
from tensormill.program.specs import SPECS
from tensormill.program.units import unit

BOUNDS = {"halves": (0.5, 1.0), "a third": (1 / 3, 1.0), "thirds": (1 / 3, 2 / 3, 1.0)}
LIMITS = Limits(tokens=16, sequences=2, rows=16, pages={0: 9, 5: 9}, slots=3, page=8, kv_type="f32", drafts=2)
P = own("p")
Make = Callable[..., Value]
Build = Callable[[Tracer, Make], Any]


def kv(g: Tracer, a: Make, **how: Any) -> Value:
    cache = g.paged("kv", k=[6, 4], v=[6, 5], window=5)
    g.kv_write(cache, a("k", "T", 6, 4), a("v", "T", 6, 5))
    return g.attention(a("q", "T", 12, 4), [cache], sinks=a("sinks", 12), scale=0.5, **how)


def latent(g: Tracer, a: Make) -> Value:
    cache = g.paged("kv", k=[1, 4])
    g.kv_write(cache, a("k", "T", 1, 4))
    return g.attention(a("q", "T", 6, 4), [cache], v_dim=3)


def encoder(g: Tracer, a: Make) -> Value:
    own_rows = (a("k", "T", 6, 4), a("v", "T", 6, 5))
    return g.attention(a("q", "T", 6, 4), [own_rows], bias=a("bias", 8, 6), buckets=8)


def scan(groups: int) -> Build:
    def build(g: Tracer, a: Make) -> Value:
        b, c = a("B", "T", groups, 3), a("C", "T", groups, 3)
        return g.ssm_scan(a("x", "T", 12, 2), g.sigmoid(a("dt", "T", 12)), a("A", 12, 1), b, c, g.state("s", [12, 2, 3]))

    return build


def delta(how: str) -> Build:
    def build(g: Tracer, a: Make) -> Value:
        q, k, v = a("q", "T", 6, 2), a("k", "T", 6, 2), a("v", "T", 12, 3)
        return g.delta_rule(q, k, v, a("beta", "T", 12), a("g", "T", 12, 1), g.state("s", [12, 2, 3]), map=how)

    return build


HEADS = {"q": split(1), "k": split(1), "v": split(1)}
TILED = {"q": split(1), "k": split(1), "v": split(1, 6), "beta": split(1, 6), "g": split(1, 6)}
SSM = {"x": split(1), "dt": split(1), "A": split(0), "B": split(1), "C": split(1)}
UP = {"w": split(0), "b": split(0)}
CASES: dict[str, tuple[Build, dict[str, State], State]] = {
    "embed by D": (lambda g, a: g.embed(a("ids", "T"), a("w", 9, 6)), {"w": split(1)}, split(1)),
    "linear by O": (lambda g, a: g.linear(a("x", "T", 6), a("w", 12, 6), a("b", 12)), UP, split(1)),
    "linear by O, strided": (lambda g, a: g.linear(a("x", "T", 6), a("w", 12, 6)), {"w": split(0, 6)}, split(1, 6)),
    "linear by I": (
        lambda g, a: g.linear(a("x", "T", 6), a("w", 5, 6), a("b", 5), a("s", 1)), {"x": split(1), "w": split(1)}, PART),
    "linear by I, strided": (lambda g, a: g.linear(a("x", "T", 12), a("w", 5, 12)), {"x": split(1, 6), "w": split(1, 6)}, PART),
    "linear of a part": (lambda g, a: g.linear(a("x", "T", 6), a("w", 5, 6), a("b", 5)), {"x": PART}, PART),
    "linear of own rows": (lambda g, a: g.linear(a("x", "T", 6), a("w", 5, 6)), {"x": P}, P),
    "linear of own rows, bias": (lambda g, a: g.linear(a("x", "T", 6), a("w", 5, 6), a("b", 5)), {"x": P}, PART),
    "linear of heads": (lambda g, a: g.linear(a("x", "T", 6, 4), a("w", 5, 4), a("b", 5)), {"x": split(1)}, split(1)),
    "linear by group": (
        lambda g, a: g.linear(a("x", "T", 6, 4), a("w", 18, 4), a("b", 18), groups=6), {"x": split(1), **UP}, split(1)),
    "linear by group, stacked": (
        lambda g, a: g.linear(a("x", "T", 6, 4), a("w", 6, 3, 4), groups=6), {"x": split(1), **UP}, split(1)),
    "linear in a group": (
        lambda g, a: g.linear(a("x", "T", 2, 6), a("w", 2, 3, 6), groups=2), {"x": split(2), "w": split(2)}, PART),
    "hadamard": (lambda g, a: g.hadamard(a("x", "T", 12), 2), {"x": split(1)}, split(1)),
    "hadamard of a part": (lambda g, a: g.hadamard(a("x", "T", 8), 4), {"x": PART}, PART),
    "mix by D": (lambda g, a: g.mix(a("w", "T", 3), a("x", "T", 3, 6)), {"x": split(2)}, split(1)),
    "mix of parts": (lambda g, a: g.mix(a("w", "T", 3, 2), a("x", "T", 3, 6)), {"x": PART}, PART),
    "mix of own rows": (lambda g, a: g.mix(a("w", "T", 3), a("x", "T", 3, 6)), {"x": P}, PART),
    "rms over a split": (lambda g, a: g.rms_norm(a("x", "T", 6), a("w", 6)), {"x": split(1), "w": split(0)}, split(1)),
    "rms of heads": (lambda g, a: g.rms_norm(a("x", "T", 6, 4), a("w", 4), over="sum"), {"x": split(1)}, split(1)),
    "rms of groups": (lambda g, a: g.rms_norm(a("x", "T", 6, 4), a("w", 6, 4)), {"x": split(1), "w": split(0)}, split(1)),
    "rms of own rows": (lambda g, a: g.rms_norm(a("x", "T", 3, 4), a("w", 4)), {"x": P}, P),
    "layer norm over a split": (
        lambda g, a: g.layer_norm(a("x", "T", 6), a("w", 6), a("b", 6)), {"x": split(1), **UP}, split(1)),
    "layer norm of own rows": (lambda g, a: g.layer_norm(a("x", "T", 6), a("w", 6)), {"x": P}, P),
    "softmax beside the split": (lambda g, a: g.softmax(a("x", "T", 4, 6), 1), {"x": split(2)}, split(2)),
    "sum beside the split": (lambda g, a: g.sum(a("x", "T", 4, 6), 1), {"x": split(2)}, split(1)),
    "sum over the split": (lambda g, a: g.sum(a("x", "T", 6, 4), 1), {"x": split(1)}, PART),
    "sum of own rows": (lambda g, a: g.sum(a("x", "T", 3, 4), 1), {"x": P}, PART),
    "add strips": (lambda g, a: a("x", "T", 6) + a("b", 6), {"x": split(1), "b": split(0)}, split(1)),
    "add to size 1": (lambda g, a: a("x", "T", 6, 4) + a("y", "T", 1, 4), {"x": split(1)}, split(1)),
    "add parts": (lambda g, a: a("x", "T", 6) + a("y", "T", 6), {"x": PART, "y": PART}, PART),
    "add full to part": (lambda g, a: a("x", "T", 6) + a("y", "T", 6), {"y": PART}, PART),
    "add full to own rows": (lambda g, a: a("x", "T", 6) + a("b", 6), {"x": P}, PART),
    "add own rows of one place": (lambda g, a: a("x", "T", 6) + a("y", "T", 6), {"x": P, "y": P}, P),
    "add own rows of two places": (lambda g, a: a("x", "T", 6) + a("y", "T", 6), {"x": P, "y": own("z")}, PART),
    "mul part by full": (lambda g, a: a("x", "T", 6) * a("y", 6), {"x": PART}, PART),
    "mul own by full": (lambda g, a: a("x", "T", 3, 6) * a("y", "T", 3, 1), {"x": P}, P),
    "mul own by own": (lambda g, a: a("x", "T", 3, 6) * a("y", "T", 3, 6), {"x": P, "y": P}, P),
    "where of a part": (lambda g, a: g.where(a("c", "T", 1), a("x", "T", 6), a("y", "T", 6)), {"x": PART}, PART),
    "where of strips": (
        lambda g, a: g.where(a("c", "T", 1), a("x", "T", 6), a("y", "T", 6)), {"x": split(1), "y": split(1)}, split(1)),
    "unary of a strip": (lambda g, a: g.exp(a("x", "T", 6)), {"x": split(1)}, split(1)),
    "scale of a part": (lambda g, a: a("x", "T", 6) * 2.0, {"x": PART}, PART),
    "clamp of own rows": (lambda g, a: g.clamp(a("x", "T", 6), -1.0, 0.5), {"x": P}, P),
    "silu of own rows": (lambda g, a: g.silu(a("x", "T", 6)), {"x": P}, P),
    "rope by heads": (lambda g, a: g.rope(a("x", "T", 6, 4), a("cs", "T", 2, 2)), {"x": split(1)}, split(1)),
    "rope of a part": (lambda g, a: g.rope(a("x", "T", 6, 4), a("cs", "T", 2, 2)), {"x": PART}, PART),
    "gather": (lambda g, a: g.gather_rows(a("x", "T", 6), g.step.out_rows), {"x": split(1)}, split(1)),
    "gather of a part": (lambda g, a: g.gather_rows(a("x", "T", 6), g.step.out_rows), {"x": PART}, PART),
    "put on strips": (
        lambda g, a: g.put_rows(a("x", "T", 6), g.step.out_rows, a("y", "R", 6)), {"x": split(1), "y": split(1)}, split(1)),
    "put full rows on a part": (lambda g, a: g.put_rows(a("x", "T", 6), g.step.out_rows, a("y", "R", 6)), {"x": PART}, PART),
    "put a part on full rows": (
        lambda g, a: g.put_rows(a("x", "T", 6), g.step.out_rows, a("y", "R", 6), add=True), {"y": PART}, PART),
    "to heads": (lambda g, a: g.heads(a("x", "T", 24), 6), {"x": split(1)}, split(1)),
    "to heads, strided": (lambda g, a: g.heads(a("x", "T", 48), 12), {"x": split(1, 24)}, split(1, 6)),
    "from heads, strided": (lambda g, a: g.flat(a("x", "T", 12, 4)), {"x": split(1, 6)}, split(1, 24)),
    "new axes": (lambda g, a: a("x", "T", 6)[:, None, :], {"x": split(1)}, split(2)),
    "own rows to heads": (lambda g, a: g.heads(a("x", "T", 6), 3), {"x": P}, P),
    "own rows made one": (lambda g, a: g.flat(a("x", "T", 3, 2)), {"x": P}, PART),
    "slice beside": (lambda g, a: a("x", "T", 6, 4)[:, :, 1:3], {"x": split(1)}, split(1)),
    "concat beside": (
        lambda g, a: g.concat(a("x", "T", 6, 2), a("y", "T", 6, 3)), {"x": split(1), "y": split(1)}, split(1)),
    "concat part and full": (lambda g, a: g.concat(a("x", "T", 2), a("y", "T", 3)), {"x": PART}, PART),
    "attention by heads": (kv, {**HEADS, "sinks": split(0)}, split(1)),
    "attention on one KV head": (latent, {"q": split(1)}, split(1)),
    "attention of an encoder": (encoder, {**HEADS, "bias": split(1)}, split(1)),
    "tail by channel": (lambda g, a: g.tail(a("x", "T", 6), g.ring("r", 6, 2)), {"x": split(1)}, split(2)),
    "tail by channel, strided": (lambda g, a: g.tail(a("x", "T", 12), g.ring("r", 12, 2)), {"x": split(1, 6)}, split(2, 6)),
    "scan by heads and groups": (scan(6), SSM, split(1)),
    "scan by heads, one group": (scan(1), SSM | {"B": FULL, "C": FULL}, split(1)),
    "delta, repeated": (delta("repeat"), HEADS | {"beta": split(1), "g": split(1)}, split(1)),
    "delta, tiled": (delta("tile"), TILED, split(1, 6)),
    "pool": (lambda g, a: g.pool(a("x", "T", 6), "mean"), {"x": split(1)}, split(1)),
    "pool of own rows": (lambda g, a: g.pool(a("x", "T", 6), "mean"), {"x": P}, PART),
    "last of own rows": (lambda g, a: g.pool(a("x", "T", 6), "last"), {"x": P}, P),
    "experts by O": (
        lambda g, a: g.expert_linear(a("x", "T", 4), a("w", 6, 12, 4), a("ids", "T", 2), a("b", 6, 12), a("s", 6)),
        {"w": split(1), "b": split(1)}, split(2)),
    "experts by I": (
        lambda g, a: g.expert_linear(a("x", "T", 2, 6), a("w", 6, 5, 6), a("ids", "T", 2), a("b", 6, 5), a("s", 6)),
        {"x": split(2), "w": split(2)}, PART),
    "experts of a part": (
        lambda g, a: g.expert_linear(a("x", "T", 4), a("w", 6, 5, 4), a("ids", "T", 2), a("b", 6, 5)), {"x": PART}, PART),
    "experts by E": (
        lambda g, a: g.expert_linear(a("x", "T", 4), a("w", 6, 5, 4), a("ids", "T", 2), a("b", 6, 5), a("s", 6)),
        {"w": split(0), "b": split(0), "s": split(0)}, own("ids")),
    "embed by V": (lambda g, a: g.embed(a("ids", "T"), a("w", 12, 5)), {"w": split(0)}, own("ids")),
}  # fmt: skip


def make(g: Tracer) -> Make:
    return lambda name, *shape: g.step.make(name, shape, "i32" if name == "ids" else "f32")


def arrays(g: Tracer, step: Any) -> dict[Value, np.ndarray]:
    draw = np.random.default_rng(1)
    out = {}
    for v in dict.fromkeys(v for op in g.ops for v in op.values if v.role == "input"):
        shape = tuple(step.size(n) if isinstance(n, str) else n for n in v.shape)
        random = draw.integers(0, 6, shape).astype(np.int32) if v.name == "ids" else draw.standard_normal(shape)
        random = (random > 0).astype(np.int32) if v.name == "c" else -abs(random) if v.name in ("A", "g") else random
        out[v] = getattr(step, v.name) if v.name in ("out_rows",) else random
    return out


def steps() -> list[Any]:
    """A prompt of two sequences, then a step that reads their caches."""
    pages = ({0: [3, 5], 5: [2, 4]}, {0: [7, 1], 5: [6, 8]})
    first = [Run(range(5), pages=pages[0], slot=1), Run(range(3), pages=pages[1], slot=2)]
    second = [Run(range(2), past=5, pages=pages[0], slot=1, want=[0, 1]), Run(range(6), past=3, pages=pages[1], slot=2)]
    return [build_step(first), build_step(second)]


def run_on(ranks: Ranks, g: Tracer, out: Value, states: dict[str, State]) -> list[tuple[State, np.ndarray]]:
    made = []
    for step in steps():
        owners: dict[str, np.ndarray] = {}
        dealt = {}
        for v, array in arrays(g, step).items():
            state = states.get(v.name, FULL)
            dealt[v] = state, ranks.deal(array, state, owners)
        state, pieces = ranks.run(g.program(y=out), step, dealt)["y"]
        made.append((state, ranks.whole(state, pieces)))
    return made


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("case", CASES)
def test_a_rule_holds(case: str, bounds: str) -> None:
    build, states, expected = CASES[case]
    g = Tracer("case", {})
    out = build(g, make(g))
    one = run_on(Ranks((1.0,), LIMITS), g, out, {})
    ranks = Ranks(BOUNDS[bounds], LIMITS)
    many = run_on(ranks, g, out, states)
    assert not ranks.reduced, "the rule should take these states as they are"
    for (_full, truth), (state, got) in zip(one, many, strict=True):
        assert replace(state, place="") == replace(expected, place="")
        np.testing.assert_allclose(got, truth, rtol=1e-9, atol=1e-9)


REFUSED: dict[str, tuple[Build, dict[str, State]]] = {
    "linear by I of full": (lambda g, a: g.linear(a("x", "T", 6), a("w", 5, 6)), {"w": split(1)}),
    "linear with a strip of bias": (lambda g, a: g.linear(a("x", "T", 6), a("w", 12, 6), a("b", 12)), {"w": split(0)}),
    "linear strided otherwise": (lambda g, a: g.linear(a("x", "T", 12), a("w", 5, 12)), {"x": split(1), "w": split(1, 6)}),
    "norm of a part": (lambda g, a: g.rms_norm(a("x", "T", 6)), {"x": PART}),
    "norm of own rows without eps": (lambda g, a: g.rms_norm(a("x", "T", 6), eps=0.0), {"x": P}),
    "norm of own rows with a bias": (lambda g, a: g.layer_norm(a("x", "T", 6), a("w", 6), a("b", 6)), {"x": P}),
    "softmax over the split": (lambda g, a: g.softmax(a("x", "T", 6)), {"x": split(1)}),
    "softmax of own rows": (lambda g, a: g.softmax(a("x", "T", 6)), {"x": P}),
    "mul of parts": (lambda g, a: a("x", "T", 6) * a("y", "T", 6), {"x": PART, "y": PART}),
    "mul of two places": (lambda g, a: a("x", "T", 6) * a("y", "T", 6), {"x": P, "y": own("z")}),
    "add full to a strip": (lambda g, a: a("x", "T", 6) + a("y", "T", 6), {"x": split(1)}),
    "silu of a part": (lambda g, a: g.silu(a("x", "T", 6)), {"x": PART}),
    "shift of a part": (lambda g, a: g.affine(a("x", "T", 6), 1.0, 2.0), {"x": PART}),
    "exp of own rows": (lambda g, a: g.exp(a("x", "T", 6)), {"x": P}),
    "clamp above zero of own rows": (lambda g, a: g.clamp(a("x", "T", 6), 1.0, 2.0), {"x": P}),
    "slice across the split": (lambda g, a: a("x", "T", 6)[:, 1:3], {"x": split(1)}),
    "heads inside a head": (lambda g, a: g.flat(a("x", "T", 3, 6)), {"x": split(2)}),
    "route of strips": (lambda g, a: g.route(a("x", "T", 6), k=2)[0], {"x": split(1)}),
    "ALiBi by heads": (lambda g, a: kv(g, a, alibi=8.0), {**HEADS, "sinks": split(0)}),
    "candidates of strips (a rewrite, not a rule)": (lambda g, a: g.top_k(a("x", "R", 6), 2)[0], {"x": split(1)}),
    "sinkhorn": (lambda g, a: g.sinkhorn(a("x", "T", 6, 6), 2, 0.1), {"x": split(1)}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_pass_is_refused(case: str) -> None:
    build, states = REFUSED[case]
    g = Tracer("case", {})
    build(g, make(g))
    op = g.ops[-1]
    of_cache = [split(0) if v is not None and not isinstance(v, Value) else None for v in op.inputs]
    given = [states.get(v.name, FULL) if isinstance(v, Value) else of_cache[i] for i, v in enumerate(op.inputs)]
    assert rule(op, given) is None


def test_query_heads_need_their_own_keys() -> None:
    """A rank that had all KV heads would number its query heads' keys from 0; so would one with another strip of keys."""
    g = Tracer("case", {})
    kv(g, make(g))
    given: list[State | None] = [split(1), split(0), None, split(0), None, None]
    assert rule(g.ops[-1], given) == (split(1),)
    for wrong in (FULL, split(1)):
        given[3] = wrong
        assert rule(g.ops[-1], given) is None
    write = g.ops[-2]
    assert rule(write, [split(0), split(1), split(1)]) == ()
    assert (
        rule(write, [FULL, split(1), split(1)])
        is rule(write, [split(0), FULL, FULL])
        is rule(write, [FULL, PART, PART])
        is None
    )


def test_every_kind_has_a_rule_or_works_on_full_values() -> None:
    full_only = {"angles", "route", "sinkhorn", "indexer", "top_k"}
    assert set(SPECS) - set(RULES) == full_only
    assert set(RULES) <= set(SPECS)


def test_units() -> None:
    g = Tracer("units", {})
    a = make(g)
    kv(g, a)
    attention = g.ops[-1]
    assert unit(attention, 0, 1) == 2  # 12 heads share 6 keys
    quantised = Value("w", (8, 512), role="weight", recipe=Recipe.whole("w", GGMLType.Q4_K, (8, 512)))
    assert unit(Op("linear", (a("x", "T", 512), quantised, None, None), (), {"groups": 1}), 1, 1) == 256
    assert unit(Op("linear", (a("x", "T", 512), quantised, None, None), (), {"groups": 1}), 1, 0) == 1
    g.heads(a("y", "T", 24), 6)
    assert unit(g.ops[-1], 0, 1) == 4
    g.hadamard(a("z", "T", 24), 8)
    assert unit(g.ops[-1], 0, 1) == 8
    g = Tracer("units", {})
    delta("repeat")(g, make(g))
    assert (unit(g.ops[-1], 0, 1), unit(g.ops[-1], 3, 1)) == (1, 2)


# ---- whole programs ----


def dense(v: Value) -> State:
    name = v.name.removeprefix("blk.0.").removeprefix("blk.1.").removesuffix(".weight")
    by = {"attn_q": 0, "attn_k": 0, "attn_v": 0, "ffn_gate": 0, "ffn_up": 0, "output": 0, "attn_output": 1, "ffn_down": 1}
    return split(by[name]) if name in by else FULL


def recurrent(v: Value) -> State:
    name, rows = v.name.split(".", 2)[-1].removesuffix(".weight"), v.shape
    tiled = {
        "ssm_alpha": split(0, 2),
        "ssm_beta": split(0, 2),
        "ssm_a": split(0, 2),
        "attn_gate": split(0, 12),
        "ssm_out": split(1, 12),
    }
    if name == "attn_qkv":
        return split(0, 12) if rows[0] == 24 else split(0)
    if name == "ssm_conv1d":  # transposed: channels last
        return split(1, 12) if rows[1] == 24 else split(1)
    return tiled.get(name, FULL)


def experts(up: int, down: int) -> Callable[[Value], State]:
    def chosen(v: Value) -> State:
        return split(down) if "down_exps" in v.name else split(up) if "exps" in v.name else FULL

    return chosen


PROGRAMS: dict[str, tuple[Callable[[], Model], Callable[[Value], State]]] = {
    "llama": (sketches.llama, dense),
    "qwen35": (sketches.qwen35, recurrent),
    "experts inside": (sketches.mamba, experts(1, 2)),
    "experts by rank": (sketches.mamba, experts(0, 0)),
    "muse by experts": (sketches.muse, experts(0, 0)),
    "muse by output rows": (sketches.muse, experts(1, 1)),
    "muse by inner columns": (sketches.muse, experts(1, 2)),
}


def on_two(name: str) -> tuple[Model, Ranks, list[np.ndarray]]:
    """The model's logits of two steps on two ranks."""
    m, chosen = PROGRAMS[name][0](), PROGRAMS[name][1]
    ranks = Ranks(BOUNDS["halves"], replace(LIMITS, pages=dict.fromkeys(m.lifetimes, 9)))
    logits = []
    for step in steps():
        env: dict[Value, Any] = {}
        for v in (*m.program.weights, *m.program.inputs):
            array = m.source.float32(v.recipe).astype(np.float64) if v.recipe else getattr(step, v.name)
            state = chosen(v) if v.recipe else FULL
            env[v] = state, ranks.deal(array, state)
        logits.append(ranks.whole(*ranks.run(m.program, step, env)["logits"]))
    return m, ranks, logits


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_two_ranks(name: str) -> None:
    m, ranks, logits = on_two(name)
    single = compile(m.program, m.source, ranks.limits, precision=np.float64)
    for step, got in zip(steps(), logits, strict=True):
        np.testing.assert_allclose(got, single.run(step)["logits"], atol=1e-9)


def test_reductions_fall_where_the_design_says() -> None:
    """Muse Spark by inner columns reduces before the norm of each expert's output; by experts after the weighted sum."""
    inside = {name.split("#")[0] for name in on_two("muse by inner columns")[1].reduced}
    assert "blk.0.mul" in inside and not any("exps" in name for name in inside)
    by_rank = {name.split("#")[0] for name in on_two("muse by experts")[1].reduced}
    assert "blk.0.ffn_latent_up" in by_rank and not any("mul" in name or "exps" in name for name in by_rank)
    llama = {name.split("#")[0] for name in on_two("llama")[1].reduced}
    assert {name.split(".")[-1] for name in llama} <= {"add", "gather_rows"}  # before each norm, nowhere else
