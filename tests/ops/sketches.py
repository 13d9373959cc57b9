"""The blocks of OPS.md §8 at tiny sizes, as `tiny.model`s."""

from __future__ import annotations

import numpy as np

from ops.tiny import Model, model
from tensormill.program import Scope, Selected, Tracer, Value

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


def qwen35() -> Model:
    """Gated delta net: short convolution, l2 norms, 4 value heads on 2 key heads (tiled)."""
    n_k, heads, width, wide, conv = 2, 4, 8, 6, 4
    n = n_k * width

    def block(g: Tracer, x: Value, w: Scope) -> Value:
        def convolved(name: str, a: int, b: int, count: int) -> Value:
            u = g.tail(g.linear(h, w.attn_qkv.rows(a, b)), g.ring(name, b - a, conv - 1))
            return g.heads(g.silu(g.sum(u * w.ssm_conv1d.rows(a, b).T, axis=1)), count)

        h = g.rms_norm(x, eps=1e-5)
        q, k = (g.rms_norm(convolved(m, a, a + n, n_k), eps=1e-6, over="sum") for m, a in (("q", 0), ("k", n)))
        v = convolved("v", 2 * n, 2 * n + heads * wide, heads)
        decay = g.heads(w.ssm_a * g.softplus(g.linear(h, w.ssm_alpha)), heads)
        state = g.state("s", [heads, width, wide])
        o = g.delta_rule(g.scale(q, width**-0.5), k, v, g.sigmoid(g.linear(h, w.ssm_beta)), decay, state, map="tile")
        o = g.rms_norm(o, w.ssm_norm, 1e-5) * g.silu(g.heads(g.linear(h, w.attn_gate), heads))
        return x + g.linear(g.flat(o), w.ssm_out)

    rows = 2 * n + heads * wide
    shapes = {
        "attn_qkv.weight": (rows, 24), "ssm_conv1d.weight": (rows, conv), "ssm_a": (heads,), "ssm_alpha.weight": (heads, 24),
        "ssm_beta.weight": (heads, 24), "ssm_norm.weight": (wide,), "attn_gate.weight": (heads * wide, 24),
        "ssm_out.weight": (24, heads * wide),
    }  # fmt: skip
    return model(shapes, block)


def mamba() -> Model:
    """Mamba-2: 4 heads of 6 on 2 groups of B and C, then experts chosen by sigmoid and bias, two of five."""
    heads, width, groups, n, experts = 4, 6, 2, 5, 5

    def block(g: Tracer, x: Value, w: Scope) -> Value:
        h = g.rms_norm(x, eps=1e-5)
        size = heads * width + 2 * groups * n
        u = g.tail(g.linear(h, w.ssm_in), g.ring("conv", size, 3))
        u = g.silu(g.sum(u * w.ssm_conv1d.T, axis=1))
        a, b = heads * width, heads * width + groups * n
        xs, bs, cs = g.heads(u[:, :a], heads), g.heads(u[:, a:b], groups), g.heads(u[:, b:], groups)
        dt = g.softplus(g.linear(h, w.ssm_dt))
        y = g.ssm_scan(xs, dt, w.ssm_a, bs, cs, g.state("ssm", [heads, width, n]))
        x = x + g.linear(g.flat(y), w.ssm_out)
        h = g.rms_norm(x, eps=1e-5)
        ids, p = g.route(g.sigmoid(g.linear(h, w.ffn_gate_inp)), w["exp_probs_b"], k=2)
        return x + g.mix(p, g.expert_linear(g.relu2(g.expert_linear(h, w.ffn_up_exps, ids)), w.ffn_down_exps, ids))

    size = heads * width + 2 * groups * n
    shapes = {
        "ssm_in.weight": (size, 24), "ssm_conv1d.weight": (size, 4), "ssm_dt.weight": (heads, 24), "ssm_a": (heads, 1),
        "ssm_out.weight": (24, heads * width), "ffn_gate_inp.weight": (experts, 24), "exp_probs_b.bias": (experts,),
        "ffn_up_exps.weight": (experts, 20, 24), "ffn_down_exps.weight": (experts, 24, 20),
    }  # fmt: skip
    return model(shapes, block)


def deepseek4() -> Model:
    """Compressed attention: ratio 4 with overlap and an indexer in layer 0, ratio 8 in layer 1, window 10, sinks."""
    heads, width, index_heads, index_width, top = 4, 16, 16, 8, 3

    def compress(g: Tracer, name: str, x: Value, m: list[Value], r: int, k: int) -> Value:
        kv, gate, ape, norm = m
        two = 2 if r == 4 else 1
        a = g.tail(g.linear(x, kv), g.ring(name + ".kv", two * k, two * r - 1), rows=r)
        gated = g.linear(x, gate) + g.embed(g.mod(g.step.index, r), ape)
        s = g.tail(gated, g.ring(name + ".gate", two * k, two * r - 1), rows=r, pad=-np.inf)
        if r == 4:
            a, s = (g.concat(m[:, :4, :k], m[:, 4:, k:], axis=1) for m in (a, s))
        pooled = g.rms_norm(g.sum(g.softmax(s, axis=1) * a, axis=1), norm, 1e-5)
        return g.rope(g.heads(pooled, 1), g.angles(FREQ, rows=r), at="end")

    def block(g: Tracer, x: Value, w: Scope) -> Value:
        r = 4 if g.prefix == "blk.0." else 8
        cs = g.angles(FREQ)
        h = g.rms_norm(x, eps=1e-5)
        q = g.rope(g.rms_norm(g.heads(g.linear(h, w.attn_q), heads), eps=1e-5), cs, at="end")
        raw = g.paged("raw", k=[1, width], window=10)
        g.kv_write(raw, k=g.rope(g.heads(g.linear(h, w.attn_kv), 1), cs, at="end"))
        comp = g.paged("comp", k=[1, width], ratio=r)
        own = [w[f"c{r}_{part}"] for part in ("kv", "gate", "ape", "norm")]
        g.kv_write(comp, k=compress(g, "comp", h, own, r, width), rows=r)
        sources = [raw, comp]
        if r == 4:
            keys = g.paged("index", k=[1, index_width], ratio=4)
            own = [w[f"i_{part}"] for part in ("kv", "gate", "ape", "norm")]
            g.kv_write(keys, k=compress(g, "index", h, own, 4, index_width), rows=4)
            iq = g.rope(g.heads(g.linear(h, w.i_q), index_heads), cs, at="end")
            sources[1] = Selected(comp, g.indexer(iq, g.linear(h, w.i_proj), keys, k=top))
        o = g.attention(q, sources, sinks=w.attn_sinks, scale=width**-0.5, v_dim=width)
        o = g.linear(g.heads(g.rope(o, cs, at="end", inverse=True), 2), w.attn_output_a, groups=2)
        return x + g.linear(g.flat(o), w.attn_output_b)

    shapes: dict[str, tuple[int, ...]] = {
        "attn_q.weight": (heads * width, 24), "attn_kv.weight": (width, 24), "attn_sinks.weight": (heads,),
        "attn_output_a.weight": (20, 32), "attn_output_b.weight": (24, 20), "i_q.weight": (index_heads * index_width, 24),
        "i_proj.weight": (index_heads, 24),
    }  # fmt: skip
    for name, rows, k, r in (("c4", 2 * width, width, 4), ("c8", width, width, 8), ("i", 2 * index_width, index_width, 4)):
        parts = {"kv": (rows, 24), "gate": (rows, 24), "ape": (r, rows), "norm": (k,)}
        shapes |= {f"{name}_{part}.weight": shape for part, shape in parts.items()}
    return model(shapes, block)


def muse() -> Model:
    """Muse Spark's experts: latent width, a norm of each expert's scaled output before the weighted sum."""

    def block(g: Tracer, x: Value, w: Scope) -> Value:
        h = g.rms_norm(x, eps=1e-5)
        ids, p = g.route(g.sigmoid(g.linear(h, w.ffn_gate_inp)), w["exp_probs_b"], k=3, eps=1e-15)
        z = g.linear(h, w.ffn_latent_down)
        y = g.silu(g.expert_linear(z, w.ffn_gate_exps, ids)) * g.expert_linear(z, w.ffn_up_exps, ids)
        y = g.rms_norm(g.expert_linear(y, w.ffn_down_exps, ids) * w.ffn_post_exp_norm, eps=1e-8)
        return x + g.rms_norm(g.linear(g.mix(p, y), w.ffn_latent_up), eps=1e-8)

    shapes = {
        "ffn_gate_inp.weight": (6, 24), "exp_probs_b.bias": (6,), "ffn_latent_down.weight": (12, 24),
        "ffn_gate_exps.weight": (6, 16, 12), "ffn_up_exps.weight": (6, 16, 12), "ffn_down_exps.weight": (6, 12, 16),
        "ffn_post_exp_norm.weight": (12,), "ffn_latent_up.weight": (24, 12),
    }  # fmt: skip
    return model(shapes, block)
