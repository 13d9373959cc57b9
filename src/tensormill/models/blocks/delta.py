"""Gated delta-net: a short causal convolution, then a recurrence whose state a token first decays and then corrects.

Sizes by the file's `ssm.*` keys: n key heads of size K, H value heads of size Kv. The op `delta_rule` is the recurrence itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensormill.models.hyper import MOST_WIDE, Hyper
from tensormill.program import Scope, Tracer, Value


@dataclass(frozen=True)
class Sizes:
    """n key heads of size K, H value heads of size Kv, `conv` taps."""

    n: int
    K: int
    H: int
    Kv: int
    conv: int

    @staticmethod
    def of(c: Hyper) -> Sizes:
        """From the `ssm.*` keys."""
        n = c.whole("ssm.group_count", least=1, most=MOST_WIDE)
        K = c.whole("ssm.state_size", least=1, most=MOST_WIDE)
        H = c.whole("ssm.time_step_rank", least=1, most=MOST_WIDE)
        inner = c.whole("ssm.inner_size", least=1)
        if H % n:
            raise c.odd("ssm.time_step_rank", f"a multiple of ssm.group_count, {n}")
        if inner % H:
            raise c.odd("ssm.inner_size", f"a multiple of ssm.time_step_rank, {H}")
        return Sizes(n, K, H, inner // H, c.whole("ssm.conv_kernel", least=2, most=64))


def delta_net(g: Tracer, h: Value, w: Scope, c: Hyper, beta: Value, alpha: Value, *, map: str) -> Value:
    """The sub-block of h [T, D]; `beta`, `alpha` [T, H] as projected; `map`: whose keys a value head uses (op `delta_rule`)."""
    s = Sizes.of(c)
    keys, whole = s.n * s.K, 2 * s.n * s.K + s.H * s.Kv
    q = g.heads(convolve(g, h, w, s, "q", 0, keys), s.n)
    k = g.heads(convolve(g, h, w, s, "k", keys, 2 * keys), s.n)
    v = g.heads(convolve(g, h, w, s, "v", 2 * keys, whole), s.H)
    q, k = (g.rms_norm(m, eps=c.eps, over="sum") for m in (q, k))
    decay = g.heads(g.softplus(alpha + w.ssm_dt) * w.ssm_a, s.H)
    state = g.state("state", [s.H, s.K, s.Kv])
    o = g.delta_rule(g.scale(q, s.K**-0.5), k, v, g.sigmoid(beta), decay, state, map=map)
    o = g.rms_norm(o, w.ssm_norm, c.eps) * g.silu(g.heads(g.linear(h, w.attn_gate), s.H))
    return g.linear(g.flat(o), w.ssm_out)


def convolve(g: Tracer, h: Value, w: Scope, s: Sizes, name: str, start: int, stop: int) -> Value:
    """Channels start…stop of the fused projection, convolved over the last `conv` tokens, then SiLU: [T, stop − start]."""
    ring = g.ring(name, stop - start, s.conv - 1)
    last = g.tail(g.linear(h, w.attn_qkv.rows(start, stop)), ring)
    return g.silu(g.sum(last * w.ssm_conv1d.rows(start, stop).T, axis=1))
