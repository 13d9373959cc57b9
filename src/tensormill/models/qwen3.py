"""qwen3 and qwen3moe: a llama block with rotary pairs in halves, each head of q and k normed before it is rotated, no biases.

With experts: softmax over all, the best k of them weighed to a sum of 1, no shared expert.
"""

from __future__ import annotations

from tensormill.models.blocks import attention, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

ARCHITECTURES = ("qwen3", "qwen3moe")


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    cs = rope.angles(g, w, c)
    x = g.embed(g.step.tokens, w.token_embd)
    for i in range(c.L):
        x = block(g, x, w.block(i), c, cs)
    return head.logits(g, x, w, c)


def block(g: Tracer, x: Value, w: Scope, c: Hyper, cs: Value) -> Value:
    """One block, [T, D] → [T, D]."""
    x = x + attention.gqa(g, g.rms_norm(x, w.attn_norm, c.eps), w, c, cs, pair="halves", norm=True)
    h = g.rms_norm(x, w.ffn_norm, c.eps)
    if not c.E:
        return x + ffn.glu(g, h, w)
    return x + ffn.experts(g, h, w, c, gating=ffn.SOFTMAX)
