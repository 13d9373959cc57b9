"""qwen3next: as qwen35moe, but beta and alpha are packed by key head, and neighbouring value heads share a key head."""

from __future__ import annotations

from tensormill.models.blocks import attention, delta, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.models.qwen35 import recurrent
from tensormill.program import Scope, Tracer, Value


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    cs = rope.angles(g, w, c)
    x = g.embed(g.step.tokens, w.token_embd)
    for i, recurs in zip(range(c.L), recurrent(c), strict=False):
        b = w.block(i)
        h = g.rms_norm(x, b.attn_norm, c.eps)
        x = x + (delta_net(g, h, b, c) if recurs else attention.gated(g, h, b, c, cs))
        h = g.rms_norm(x, b.post_attention_norm, c.eps)
        x = x + ffn.experts(g, h, b, c, gating=ffn.SOFTMAX) + ffn.gated_shared(g, h, b)
    return head.logits(g, x, w, c)


def delta_net(g: Tracer, h: Value, w: Scope, c: Hyper) -> Value:
    """A recurrent sub-block; `ssm_ba` gives, for each key head, first its value heads' beta, then their alpha."""
    s = delta.Sizes.of(c)
    each = s.H // s.n
    packed = attention.heads(g, h, w.ssm_ba, s.n, 2 * each)
    beta, alpha = g.flat(packed[:, :, :each]), g.flat(packed[:, :, each:])
    return delta.delta_net(g, h, w, c, beta, alpha, map="repeat")
