"""How a split of an op's inputs splits its outputs (OPS.md §3 'shards', §5): one rule a kind, and `rule` to ask.

Rules only; the pass that chooses splits and inserts collectives builds on them. An op without a rule works on full values.
`alone` and `inner` say what a rule asks of the ranks besides running the op on their strips.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tensormill.program.ir import Op
from tensormill.program.specs import sources_of
from tensormill.program.states import FULL, PART, State, States, follow, inside, number, own, shape_of, split

__all__ = ["FULL", "PART", "RULES", "State", "States", "alone", "inner", "own", "rule", "split"]


Rule = Callable[[Op, States], State | None]
RULES: dict[str, Rule] = {}


def rule(op: Op, states: States) -> tuple[State, ...] | None:
    """States of the outputs for those of the inputs (None for an absent operand); None: no such split, change a state first."""
    if all(s in (None, FULL) for s in states):
        return (FULL,) * len(op.outputs)
    out = RULES[op.kind](op, states) if op.kind in RULES else None
    return None if out is None else (out,) * len(op.outputs)


def alone(op: Op, states: States) -> frozenset[int]:
    """Full inputs that count once in a part output: rank 0 takes them, the others take zeros in their place."""
    if rule(op, states) != (PART,):
        return frozenset()
    data = {"add": (0, 1), "where": (1, 2), "put_rows": (0, 2), "linear": (2,), "expert_linear": (3,)}
    places = range(len(states)) if op.kind == "concat" else data.get(op.kind, ())
    return frozenset(i for i in places if states[i] == FULL)


def inner(op: Op, states: States) -> int:
    """Numbers a row that the ranks must add up inside the op: a norm over a split axis."""
    x, shape = states[0], shape_of(op, 0)
    across = x is not None and x.kind == "split" and x.axis == len(shape) - 1
    return {"rms_norm": 1, "layer_norm": 2}.get(op.kind, 0) if across else 0


def _rule(*kinds: str) -> Callable[[Rule], Rule]:
    def register(made: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, made))
        return made

    return register


# ---- rows and views ----


@_rule("embed")
def _embed(op: Op, states: States) -> State | None:
    ids, w = states
    if ids == FULL and w is not None:
        return (
            split(len(op.outputs[0].shape) - 1, w.every)
            if w.kind == "split" and w.axis == 1
            else w
            if w.kind == "own"
            else None
        )
    return ids if ids is not None and ids.kind == "own" and w in (FULL, split(0)) else None


@_rule("gather_rows")
def _gather(_op: Op, states: States) -> State | None:
    x, rows = states
    return x if rows == FULL and x is not None and not (x.kind == "split" and x.axis == 0) else None


@_rule("put_rows")
def _put(_op: Op, states: States) -> State | None:
    x, rows, y = states
    kinds = {s.kind for s in (x, y) if s}
    if rows != FULL:
        return None
    return PART if "split" not in kinds else x if x == y else None


@_rule("reshape")
def _reshape(op: Op, states: States) -> State | None:
    (x,) = states
    assert x is not None
    shape, to = shape_of(op, 0), op.outputs[0].shape
    if x.kind == "own":  # a row must not take in other rows
        return x if number(shape[-1]) % number(to[-1]) == 0 else PART
    if x.kind != "split":
        return x
    axis = follow(shape, to, x.axis)
    if axis is None:
        return None
    every, rest = divmod(x.every * inside(shape, x.axis), inside(to, axis))
    return None if rest else split(axis, every)


@_rule("slice")
def _slice(op: Op, states: States) -> State | None:
    (x,) = states
    return None if x is None or (x.kind == "split" and x.axis == op.attrs["axis"]) else x


@_rule("concat")
def _concat(op: Op, states: States) -> State | None:
    first, same = states[0], len(set(states)) == 1
    if any(s and s.kind == "split" for s in states):
        return first if same and first is not None and first.axis != op.attrs["axis"] else None
    return first if same else PART


# ---- products ----


@_rule("linear")
def _linear(op: Op, states: States) -> State | None:
    x, w, b, scale = states
    assert x is not None and w is not None
    last, grouped = len(shape_of(op, 0)) - 1, op.attrs["groups"] > 1
    if scale not in (None, FULL):
        return None
    if w.kind == "split" and w.axis == 0:
        out = split(last - 1) if grouped else split(last, w.every)
        wanted = (out, split(0)) if grouped else (FULL, w)
        return out if (x, w) == wanted and b in (None, w) else None
    if w.kind == "split":
        return PART if x == split(last, w.every) and w.axis == len(shape_of(op, 1)) - 1 and b in (None, FULL) else None
    return _whole_weight(x, b, last - 1 if grouped else last) if w == FULL else None


def _whole_weight(x: State, b: State | None, axes: int) -> State | None:
    """A product with a full weight: sums pass, rows too, and splits of axes before those that it contracts."""
    if b not in (None, FULL):
        return None
    if x.kind == "split":
        return x if 0 < x.axis < axes else None
    return x if x.kind == "own" and b is None else PART


@_rule("expert_linear")
def _expert_linear(op: Op, states: States) -> State | None:
    x, w, ids, b, scale = states
    assert x is not None and w is not None and ids is not None
    if ids.kind == "own":
        single = scale == FULL and prod(map(number, shape_of(op, 4))) == 1
        fits = w == split(0) and b in (None, w) and (scale in (None, w) or single)
        return ids if fits and x in (FULL, ids) else None
    if ids != FULL or scale not in (None, FULL):
        return None
    if w.kind == "split" and w.axis == 1:
        return split(2, w.every) if x == FULL and b in (None, w) else None
    if w.kind == "split" and w.axis == 2:
        return PART if x == split(len(shape_of(op, 0)) - 1, w.every) and b in (None, FULL) else None
    return _whole_weight(x, b, 0) if w == FULL else None


@_rule("hadamard")
def _hadamard(_op: Op, states: States) -> State | None:
    return states[0]


@_rule("mix")
def _mix(op: Op, states: States) -> State | None:
    w, x = states
    if w != FULL or x is None:
        return None
    if x.kind == "split":
        return split(len(op.outputs[0].shape) - 1, x.every) if x.axis == 2 else None
    return PART


# ---- row-wise arithmetic ----


@_rule("rms_norm", "layer_norm")
def _norm(op: Op, states: States) -> State | None:
    x, w, b = (*states, None)[:3]
    assert x is not None
    if x.kind == "own":  # a row of zeros must stay one
        return x if w in (None, FULL) and b is None and op.attrs["eps"] > 0 else None
    return _aligned(op, states) if x.kind == "split" else None


def _aligned(op: Op, states: States) -> State | None:
    """Broadcast operands split on one axis of the output: each has that strip, or full and of size 1 there."""
    n = len(op.outputs[0].shape)
    shapes = [shape_of(op, i) for i in range(len(states))]
    places = [split(s.axis + n - len(z), s.every) for s, z in zip(states, shapes, strict=True) if s and s.kind == "split"]
    if len(set(places)) != 1 or places[0].axis == 0:
        return None
    for state, shape in zip(states, shapes, strict=True):
        at = places[0].axis - n + len(shape)
        if state is not None and state.kind != "split" and (state != FULL or (at >= 0 and shape[at] != 1)):
            return None
    return places[0]


@_rule("softmax")
def _softmax(op: Op, states: States) -> State | None:
    (x,) = states
    return x if x is not None and x.kind == "split" and x.axis != op.attrs["axis"] else None


@_rule("sum")
def _sum(op: Op, states: States) -> State | None:
    (x,) = states
    if x is None or x.kind != "split" or x.axis == op.attrs["axis"]:
        return PART  # also owned rows: what is left of them need not be whole rows
    return split(x.axis - (x.axis > op.attrs["axis"]), x.every)


@_rule("add")
def _add(op: Op, states: States) -> State | None:
    kinds = {s.kind for s in states if s}
    if "split" in kinds:
        return _aligned(op, states)
    return states[0] if kinds == {"own"} and states[0] == states[1] else PART


@_rule("mul")
def _mul(op: Op, states: States) -> State | None:
    if any(s and s.kind == "split" for s in states):
        return _aligned(op, states)
    partial = [s for s in states if s and s != FULL]
    return partial[0] if len(partial) == 1 or (partial[0].kind == "own" and partial[0] == partial[1]) else None


@_rule("where")
def _where(op: Op, states: States) -> State | None:
    condition, x, y = states
    if any(s and s.kind == "split" for s in states):
        return _aligned(op, states)
    if condition != FULL:
        return None
    return x if x is not None and x.kind == "own" and x == y else PART


ZERO_AT_ZERO = {"silu", "gelu", "gelu_tanh", "gelu_quick", "relu", "relu2", "tanh", "sqrt", "floor", "mod"}


@_rule("unary")
def _unary(op: Op, states: States) -> State | None:
    (x,) = states
    kind, a, b = op.attrs["kind"], op.attrs["a"], op.attrs["b"]
    linear = kind == "affine" and b == 0
    zero = linear or kind in ZERO_AT_ZERO or (kind == "clamp" and a <= 0 <= b)
    assert x is not None
    return x if x.kind == "split" or (x.kind == "own" and zero) or (x.kind == "part" and linear) else None


@_rule("quantise")
def _quantise(_op: Op, states: States) -> State | None:
    (x,) = states
    return x if x is not None and x.kind != "part" else None


@_rule("rope")
def _rope(_op: Op, states: States) -> State | None:
    x, cs = states
    return x if cs == FULL and x is not None and not (x.kind == "split" and x.axis != 1) else None


# ---- sequences and caches ----


@_rule("kv_write")
def _kv_write(_op: Op, states: States) -> State | None:
    cache, k, v = states
    return FULL if cache == split(0) and k == split(1) and v in (None, split(1)) else None


@_rule("attention")
def _attention(op: Op, states: States) -> State | None:
    q, sinks, bias = states[:3]
    if q != split(1) or sinks not in (None, split(0)) or bias not in (None, split(1)) or op.attrs["alibi"]:
        return None  # ALiBi's slopes depend on a head's number in the whole model
    for i, (rows, _v, _ids, source) in enumerate(sources_of(op.inputs, op.attrs)):
        keys, values, ids = states[3 + 3 * i : 6 + 3 * i]
        strip, one = (split(0), rows.k[0] == 1) if source.cache else (split(1), rows.shape[1] == 1)
        if keys != (FULL if one else strip) or values not in (None, keys) or ids not in (None, FULL):
            return None
    return split(1)


@_rule("tail")
def _tail(op: Op, states: States) -> State | None:
    x, ring = states
    if x is None or x.kind != "split" or x.axis != 1:
        return None
    return split(2, x.every) if ring == split(0, x.every * inside(shape_of(op, 0), 1)) else None


@_rule("ssm_scan")
def _ssm_scan(op: Op, states: States) -> State | None:
    groups = FULL if shape_of(op, 3)[1] == 1 else split(1)
    return split(1) if tuple(states) == (split(1), split(1), split(0), groups, groups, split(0)) else None


@_rule("delta_rule")
def _delta_rule(op: Op, states: States) -> State | None:
    keys, heads = shape_of(op, 0)[1], shape_of(op, 2)[1]
    every = number(keys) if op.attrs["map"] == "tile" and keys != heads else 0
    v = split(1, every)
    return v if tuple(states) == (split(1), split(1), v, v, v, split(0, every)) else None


@_rule("pool")
def _pool(op: Op, states: States) -> State | None:
    (x,) = states
    return PART if x is not None and x.kind == "own" and op.attrs["kind"] == "mean" else x
