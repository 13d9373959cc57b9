"""qwen35 and qwen35moe: three gated delta-nets to one gated attention; with experts, a shared one behind a gate of its own.

Key heads are spread over value heads in turn. The text model; images (whose positions have three parts) are not here.
"""

from __future__ import annotations

import numpy as np

from tensormill.models.blocks import attention, delta, ffn, head, rope
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value

ARCHITECTURES = ("qwen35", "qwen35moe")


def trace(g: Tracer, w: Scope, c: Hyper) -> dict[str, Value]:
    """The main program."""
    check_sections(c)
    cs = rope.angles(g, w, c)
    x = g.embed(g.step.tokens, w.token_embd)
    for i, recurs in zip(range(c.L), recurrent(c), strict=False):
        b = w.block(i)
        h = g.rms_norm(x, b.attn_norm, c.eps)
        x = x + (delta_net(g, h, b, c) if recurs else attention.gated(g, h, b, c, cs))
        h = g.rms_norm(x, b.post_attention_norm, c.eps)
        x = x + (ffn.experts(g, h, b, c, gating=ffn.SOFTMAX) + ffn.gated_shared(g, h, b) if c.E else ffn.glu(g, h, b))
    return head.logits(g, x, w, c)


def recurrent(c: Hyper) -> tuple[bool, ...]:
    """Which blocks are delta-nets: as the file lists them, else all but every fourth."""
    key = "attention.recurrent_layers"
    if key in c:
        return tuple(bool(r) for r in c.each(key))
    n = c.whole("full_attention_interval", 4, least=1)
    return tuple((i + 1) % n != 0 for i in range(c.blocks))


def delta_net(g: Tracer, h: Value, w: Scope, c: Hyper) -> Value:
    """A recurrent sub-block, [T, D] → [T, D]."""
    return delta.delta_net(g, h, w, c, g.linear(h, w.ssm_beta), g.linear(h, w.ssm_alpha), map="tile")


def check_sections(c: Hyper) -> None:
    """Pairs are dealt in turn to time, height and width, all equal for text; only a pair that gets none would matter."""
    key = "rope.dimension_sections"
    sections, fair = c.raw(key), [len(range(part, c.rot // 2, 3)) for part in range(3)]
    if not isinstance(sections, np.ndarray) or sections.dtype.kind not in "iu" or sections[:3].tolist() != fair:
        raise c.odd(key, f"{fair}, the {c.rot // 2} rotated pairs dealt in turn to three parts of a position")
