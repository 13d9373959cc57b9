"""gemma3: norms before and after each half of a block, normed heads, GELU gates, mostly sliding layers, a scaled embedding.

Sliding layers rotate with a base of their own and no scaling; every sixth sees all. The text model; images are not here.
"""

from __future__ import annotations

from tensormill.models.blocks import attention, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

BLOCKS_OF_27B = 62  # the one size whose queries are scaled by D/H, not by K; no key says so


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    near = rope.angles(g, w, c, base=rope.freq_base(c, "rope.freq_base_swa"), scaled=False)
    far = rope.angles(g, w, c)
    slides = c.sliding(default=6) if c.window else (False,) * c.L
    x = g.scale(g.embed(g.step.tokens, w.token_embd), c.D**0.5)
    for i in range(c.L):
        x = block(g, x, w.block(i), c, near if slides[i] else far, c.window if slides[i] else 0)
    return head.logits(g, x, w, c, softcap=c.number("final_logit_softcapping", 0.0, least=0.0))


def block(g: Tracer, x: Value, w: Scope, c: Hyper, cs: Value, window: int) -> Value:
    """One block, [T, D] → [T, D]; `window` 0 sees all."""
    scale = (c.D / c.H if c.L == BLOCKS_OF_27B else c.K) ** -0.5
    h = g.rms_norm(x, w.attn_norm, c.eps)
    a = attention.gqa(g, h, w, c, cs, pair="halves", norm=True, scale=scale, window=window)
    x = x + g.rms_norm(a, w.post_attention_norm, c.eps)
    f = ffn.glu(g, g.rms_norm(x, w.ffn_norm, c.eps), w, act="gelu_tanh")
    return x + g.rms_norm(f, w.post_ffw_norm, c.eps)
