"""muse-spark: sliding layers rotate, full ones have no positions; gated and normed heads; a latent mixture of experts.

Each expert's own output is normed before the weighted sum, and learned gains a channel blend each half into the residual.
"""

from __future__ import annotations

from tensormill.models.blocks import attention, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

TINY = 1e-15  # added to the sum of expert weights


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    base = rope.freq_base(c, "rope.freq_base_swa", rope.freq_base(c))
    cs = rope.angles(g, w, c, base=base)
    slides = c.sliding()
    x = g.rms_norm(g.embed(g.step.tokens, w.token_embd), eps=c.eps)
    for i in range(c.L):
        b = w.block(i)
        a = attend(g, g.rms_norm(x, b.attn_norm, c.eps), b, c, cs if slides[i] else None)
        x = x * b.attn_resid_alpha + a * b.attn_resid_beta
        f = feed(g, g.rms_norm(x, b.ffn_norm, c.eps), b, c)
        x = x * b.ffn_resid_alpha + f * b.ffn_resid_beta
    cap = c.number("final_logit_softcapping", 0.0, least=0.0)
    return head.logits(g, x, w, c, scale=c.number("logit_scale"), softcap=cap)


def attend(g: Tracer, h: Value, w: Scope, c: Hyper, cs: Value | None) -> Value:
    """Attention of h [T, D], heads normed and gated; `cs` None: a full layer without positions."""
    q, k, v = attention.project(g, h, w, c)
    q, k = attention.norm_heads(g, q, k, w, c)
    if cs is not None:
        q, k = g.rope(q, cs), g.rope(k, cs)
    o = g.rms_norm(attention.attend(g, q, k, v, c, window=c.window if cs is not None else 0), eps=c.eps)
    o = o * g.sigmoid(attention.heads(g, h, w.attn_gate, c.H, c.Kv))
    return g.rms_norm(g.linear(g.flat(o), w.attn_output), eps=post_eps(c))


def feed(g: Tracer, h: Value, w: Scope, c: Hyper) -> Value:
    """Experts of h [T, D] in a narrower space; their outputs are normed one by one, then the sum."""
    ids, p = ffn.route(g, h, w, c, gating=c.whole("expert_gating_func"), norm=c.flag("expert_weights_norm"), eps=TINY)
    z = g.rms_norm(g.linear(h, w.ffn_latent_down), w.ffn_pre_exp_norm, c.eps)
    y = g.rms_norm(ffn.expert_glu(g, z, w, c, ids) * w.ffn_post_exp_norm, eps=post_eps(c))
    return g.rms_norm(g.linear(g.mix(p, y), w.ffn_latent_up) * w.post_ffw_norm, eps=post_eps(c))


def post_eps(c: Hyper) -> float:
    """Of the norms after attention and experts, far smaller than that of the others."""
    return c.number("post_norm_epsilon", least=0.0)
