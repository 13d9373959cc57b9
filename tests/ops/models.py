"""The blocks of OPS.md §8 at tiny sizes, as `tiny.model`s."""

from __future__ import annotations

import numpy as np

from ops.tiny import Model, model
from tensormill.program import Scope, Tracer, Value

FREQ = 10000.0 ** (-np.arange(4) / 4)


def llama(window: int = 0, style: str = "slide") -> Model:
    """GQA (4 heads on 2), adjacent RoPE, SwiGLU; the second layer has the window."""

    def block(g: Tracer, x: Value, w: Scope) -> Value:
        cs = g.angles(FREQ)
        h = g.rms_norm(x, eps=1e-5)
        q, k = (g.rope(g.heads(g.linear(h, m), n), cs) for m, n in ((w.attn_q, 4), (w.attn_k, 2)))
        slides = window if g.prefix == "blk.1." else 0
        kv = g.paged("kv", k=[2, 8], v=[2, 8], window=slides, style=style)
        g.kv_write(kv, k=k, v=g.heads(g.linear(h, w.attn_v), 2))
        x = x + g.linear(g.flat(g.attention(q, [kv], scale=8**-0.5)), w.attn_output)
        h = g.rms_norm(x, eps=1e-5)
        return x + g.linear(g.silu(g.linear(h, w.ffn_gate)) * g.linear(h, w.ffn_up), w.ffn_down)

    shapes = {
        "attn_q.weight": (32, 24), "attn_k.weight": (16, 24), "attn_v.weight": (16, 24), "attn_output.weight": (24, 32),
        "ffn_gate.weight": (40, 24), "ffn_up.weight": (40, 24), "ffn_down.weight": (24, 40),
    }  # fmt: skip
    return model(shapes, block)
