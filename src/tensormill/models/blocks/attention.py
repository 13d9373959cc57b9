"""Grouped-query attention over the paged cache, with what architectures vary: fused or separate projections, norms, window.

Biases need no word here: `linear` takes the `.bias` that stands beside a weight.
"""

from __future__ import annotations

from itertools import pairwise

from tensormill.errors import ModelError
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value


def project(g: Tracer, h: Value, w: Scope, c: Hyper) -> tuple[Value, Value, Value]:
    """q [T, H, K], k [T, G, K], v [T, G, Kv] of h [T, D]; a fused `attn_qkv` is taken apart by rows."""
    if "attn_qkv" in w:
        ends = (0, c.H * c.K, (c.H + c.G) * c.K, (c.H + c.G) * c.K + c.G * c.Kv)
        q, k, v = (w.attn_qkv.rows(a, b) for a, b in pairwise(ends))
    else:
        q, k, v = w.attn_q, w.attn_k, w.attn_v
    return heads(g, h, q, c.H, c.K), heads(g, h, k, c.G, c.K), heads(g, h, v, c.G, c.Kv)


def heads(g: Tracer, h: Value, w: Value, n: int, size: int) -> Value:
    """h·Wᵀ as n heads of that size, [T, n, size]."""
    y = g.linear(h, w)
    if y.shape[-1] != n * size:
        raise ModelError(f"{w} makes {y.shape[-1]} numbers; expected {n * size}, {n} heads of {size}")
    return g.heads(y, n)


def norm_heads(g: Tracer, q: Value, k: Value, w: Scope, c: Hyper) -> tuple[Value, Value]:
    """Each head of q and k normed by itself, with a gain."""
    return g.rms_norm(q, w.attn_q_norm, c.eps), g.rms_norm(k, w.attn_k_norm, c.eps)


def attend(g: Tracer, q: Value, k: Value, v: Value, c: Hyper, *, scale: float | None = None, window: int = 0) -> Value:
    """Store k and v, then attend: [T, H, Kv]. `window`: tokens seen, itself included (0: all); scale defaults to K^−½."""
    kv = g.paged("kv", k=[c.G, c.K], v=[c.G, c.Kv], window=window)
    g.kv_write(kv, k=k, v=v)
    return g.attention(q, [kv], scale=c.K**-0.5 if scale is None else scale)


def gqa(
    g: Tracer,
    h: Value,
    w: Scope,
    c: Hyper,
    cs: Value,
    *,
    pair: str,
    norm: bool = False,
    scale: float | None = None,
    window: int = 0,
) -> Value:
    """The whole sub-block from the normed input [T, D] to the output projection; `pair`: adjacent or halves."""
    q, k, v = project(g, h, w, c)
    if norm:
        q, k = norm_heads(g, q, k, w, c)
    q, k = g.rope(q, cs, pair=pair), g.rope(k, cs, pair=pair)
    return g.linear(g.flat(attend(g, q, k, v, c, scale=scale, window=window)), w.attn_output)


def gated(g: Tracer, h: Value, w: Scope, c: Hyper, cs: Value) -> Value:
    """Normed heads rotated in halves; each query head comes with a gate behind it that its output passes through a sigmoid."""
    both = heads(g, h, w.attn_q, c.H, 2 * c.K)
    q, k = norm_heads(g, both[:, :, : c.K], heads(g, h, w.attn_k, c.G, c.K), w, c)
    q, k = g.rope(q, cs, pair="halves"), g.rope(k, cs, pair="halves")
    o = attend(g, q, k, heads(g, h, w.attn_v, c.G, c.Kv), c)
    return g.linear(g.flat(o * g.sigmoid(both[:, :, c.K :])), w.attn_output)
