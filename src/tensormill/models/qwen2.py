"""qwen2: a llama block with rotary pairs in halves and biases on q, k and v. Qwen 1.5 and 2.5, Coder and Math included."""

from __future__ import annotations

from tensormill.models.blocks import attention, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    cs = rope.angles(g, w, c)
    x = g.embed(g.step.tokens, w.token_embd)
    for i in range(c.L):
        b = w.block(i)
        x = x + attention.gqa(g, g.rms_norm(x, b.attn_norm, c.eps), b, c, cs, pair="halves")
        x = x + ffn.glu(g, g.rms_norm(x, b.ffn_norm, c.eps), b)
    return head.logits(g, x, w, c)
