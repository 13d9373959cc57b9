"""The feed-forward part: gated (SwiGLU, GeGLU), and as a mixture of experts with every way of scoring them.

`glu` is dense, `route` chooses experts, `expert_glu` runs them, `experts` does both and mixes.
"""

from __future__ import annotations

from tensormill.errors import ModelError
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

SMALLEST_SUM = 2.0**-14  # weights of the chosen are divided by their sum, but by no less (as llama.cpp does)
SOFTMAX, SIGMOID, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS = 1, 2, 3, 4  # expert_gating_func


def glu(g: Tracer, h: Value, w: Scope, *, act: str = "silu", suffix: str = "") -> Value:
    """down(act(gate·h) * up·h); `suffix` picks another set of tensors, e.g. `_shexp`."""
    gate, up = g.linear(h, w["ffn_gate" + suffix]), g.linear(h, w["ffn_up" + suffix])
    return g.linear(g.unary(gate, act) * up, w["ffn_down" + suffix])


def route(
    g: Tracer, h: Value, w: Scope, c: Hyper, *, gating: int, norm: bool = True, eps: float = SMALLEST_SUM
) -> tuple[Value, Value]:
    """Experts of each token, ids [T, k] and weights [T, k]: chosen by score + `exp_probs_b`, weighed by score."""
    logits = g.linear(h, w.ffn_gate_inp)
    if logits.shape[-1] != c.E:
        raise ModelError(f"{w.ffn_gate_inp} scores other experts than the {c.E} of {c.arch}.expert_count")
    score, how = _score(g, logits, c, gating, "sum" if norm else "none")
    groups = c.whole("expert_group_count", 0, most=c.E) or 1
    return g.route(
        score,
        w.exp_probs_b if "exp_probs_b" in w else None,
        k=c.k,
        groups=groups,
        keep=c.whole("expert_group_used_count", groups, most=groups) or groups,
        norm=how,
        eps=eps,
        scale=c.number("expert_weights_scale", 1.0) or 1.0,
    )


def _score(g: Tracer, logits: Value, c: Hyper, gating: int, norm: str) -> tuple[Value, str]:
    """Scores and the kind of normalising that goes with them."""
    if gating == SOFTMAX:
        return g.softmax(logits), norm
    if gating == SIGMOID:
        return g.sigmoid(logits), norm
    if gating == SOFTMAX_OF_CHOSEN:
        return logits, "softmax"
    if gating == SQRT_SOFTPLUS:
        return g.sqrt(g.softplus(logits)), norm
    raise c.odd("expert_gating_func", "1 softmax, 2 sigmoid, 3 softmax of the chosen or 4 sqrt(softplus)")


def experts(g: Tracer, h: Value, w: Scope, c: Hyper, *, gating: int, norm: bool = True, act: str = "silu") -> Value:
    """The chosen experts of h [T, D], gated, mixed: [T, D]."""
    ids, p = route(g, h, w, c, gating=gating, norm=norm)
    return g.mix(p, expert_glu(g, h, w, c, ids, act=act))


def expert_glu(g: Tracer, h: Value, w: Scope, c: Hyper, ids: Value, *, act: str = "silu") -> Value:
    """Each chosen expert's own output, [T, k, D]; a fused `ffn_gate_up_exps` has the gate's rows first."""
    if "ffn_gate_up_exps" in w:
        both, inner = w.ffn_gate_up_exps, int(w.ffn_down_exps.shape[-1])
        gate, up = both.rows(0, inner), both.rows(inner, 2 * inner)
    else:
        gate, up = w.ffn_gate_exps, w.ffn_up_exps
    for stack in (gate, up, w.ffn_down_exps):
        if stack.shape[0] != c.E:
            raise ModelError(f"{stack} has other experts than the {c.E} of {c.arch}.expert_count")
    y = g.unary(g.expert_linear(h, gate, ids), act) * g.expert_linear(h, up, ids)
    return g.expert_linear(y, w.ffn_down_exps, ids)


def gated_shared(g: Tracer, h: Value, w: Scope) -> Value:
    """The shared expert of h [T, D], times one sigmoid a token."""
    gate = g.reshape(g.sum(h * w.ffn_gate_inp_shexp), 1)
    return glu(g, h, w, suffix="_shexp") * g.sigmoid(gate)
