"""llama: RMS pre-norm, grouped-query attention with adjacent rotary pairs, SwiGLU; with experts it is Mixtral.

Llama 1 to 3, Mistral, Mixtral, SmolLM2 and many more; llama-3's RoPE factors and biases are taken where the file has them.
"""

from __future__ import annotations

from tensormill.models.blocks import attention, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

IGNORED = ("blk.*.attn_rot_embd.weight",)  # of old files: frequencies that follow from the keys


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    cs = rope.angles(g, w, c)
    x = g.embed(g.step.tokens, w.token_embd)
    for i in range(c.L):
        x = block(g, x, w.block(i), c, cs)
    return head.logits(g, x, w, c)


def block(g: Tracer, x: Value, w: Scope, c: Hyper, cs: Value) -> Value:
    """One block, [T, D] → [T, D]."""
    x = x + attention.gqa(g, g.rms_norm(x, w.attn_norm, c.eps), w, c, cs, pair="adjacent")
    h = g.rms_norm(x, w.ffn_norm, c.eps)
    if not c.E:
        return x + ffn.glu(g, h, w)
    return x + ffn.experts(g, h, w, c, gating=ffn.SOFTMAX)
