"""deepseek2: multi-head latent attention, and experts beside shared ones after a few dense blocks.

DeepSeek-V2, V3, R1, Kimi-K2, GLM-4.7-Flash. Keys and values are one latent vector a token: k_b moves into the query, v_b
behind the sum. Old files have both as one `attn_kv_b`; there keys and values are expanded to whole heads, as their makers did.
"""

from __future__ import annotations

import math

from tensormill.models.blocks import attention, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    cs = rope.angles(g, w, c, mag=1.0)
    dense = c.whole("leading_dense_block_count", 0) if c.E else c.L
    x = g.embed(g.step.tokens, w.token_embd)
    for i in range(c.L):
        b = w.block(i)
        x = x + attend(g, g.rms_norm(x, b.attn_norm, c.eps), b, c, cs)
        h = g.rms_norm(x, b.ffn_norm, c.eps)
        x = x + (ffn.glu(g, h, b) if i < dense else experts(g, h, b, c))
    return head.logits(g, x, w, c)


def attend(g: Tracer, h: Value, w: Scope, c: Hyper, cs: Value) -> Value:
    """Latent attention of h [T, D]; a query head is [nope | rope] of sizes size − rot and rot."""
    split = "attn_k_b" in w
    size = c.whole("attention.key_length_mla" if split else "attention.key_length", least=c.rot + 1)
    lora, nope = c.whole("attention.kv_lora_rank", least=1), size - c.rot
    q = attention.heads(g, *query(g, h, w, c), c.H, size)
    q_nope, q_rope = q[:, :, :nope], g.rope(q[:, :, nope:], cs)
    a = g.linear(h, w.attn_kv_a_mqa)
    latent = g.rms_norm(a[:, :lora], w.attn_kv_a_norm, c.eps)
    k_rope = g.rope(g.heads(a[:, lora:], 1), cs)
    over = (expand, absorb)[split]
    return g.linear(g.flat(over(g, q_nope, q_rope, latent, k_rope, w, c, scale(c, size))), w.attn_output)


def query(g: Tracer, h: Value, w: Scope, c: Hyper) -> tuple[Value, Value]:
    """What is multiplied by what to give the queries: low rank, but for the small models."""
    if "attn_q_a" not in w:
        return h, w.attn_q
    return g.rms_norm(g.linear(h, w.attn_q_a), w.attn_q_a_norm, c.eps), w.attn_q_b


def absorb(g: Tracer, qn: Value, qr: Value, latent: Value, kr: Value, w: Scope, c: Hyper, scale: float) -> Value:
    """Attention over the latent rows themselves, [T, H, v]."""
    q = g.concat(g.linear(qn, w.attn_k_b, groups=c.H), qr)
    k = g.concat(g.heads(latent, 1), kr)
    lora = int(latent.shape[-1])
    kv = g.paged("kv", k=[1, lora + c.rot])
    g.kv_write(kv, k=k)
    o = g.attention(q, [kv], scale=scale, v_dim=lora)
    return g.linear(o, w.attn_v_b, groups=c.H)


def expand(g: Tracer, qn: Value, qr: Value, latent: Value, kr: Value, w: Scope, c: Hyper, scale: float) -> Value:
    """Attention over whole heads made of the latent row, [T, H, v]."""
    nope = int(qn.shape[-1])
    both = attention.heads(g, latent, w.attn_kv_b, c.H, nope + c.Kv)
    k = g.concat(both[:, :, :nope], g.concat(*[kr] * c.H, axis=1))
    kv = g.paged("kv", k=[c.H, nope + c.rot], v=[c.H, c.Kv])
    g.kv_write(kv, k=k, v=both[:, :, nope:])
    return g.attention(g.concat(qn, qr), [kv], scale=scale)


def scale(c: Hyper, size: int) -> float:
    """1/√size, times the square of YaRN's magnitude for the model's log multiplier (stored times 0.1)."""
    _, factor = rope.scaling(c)
    times = rope.magnitude(factor, 10.0 * c.number("rope.scaling.yarn_log_multiplier", 0.0))
    return times * times / math.sqrt(size)


def experts(g: Tracer, h: Value, w: Scope, c: Hyper) -> Value:
    """Routed experts and the shared one."""
    gating = c.whole("expert_gating_func", ffn.SOFTMAX) or ffn.SOFTMAX
    routed = ffn.experts(g, h, w, c, gating=gating, norm=c.flag("expert_weights_norm", False))
    return routed + ffn.glu(g, h, w, suffix="_shexp") if "ffn_up_shexp" in w else routed
