"""The tiny models: what each variant of each architecture consists of. Importing this fills `tiny.VARIANTS`."""

from __future__ import annotations

import numpy as np

from models.tiny import Tiny, variant

# ---- llama ----


@variant("llama", "llama")
@variant("llama-one-kv-head", "llama", G=1, K=24, L=2)
def llama(t: Tiny) -> None:
    t.start(rope__freq_base=10000.0)
    for i in range(t.L):
        t.attention(f"blk.{i}.")
        t.ffn(f"blk.{i}.")
    t.end()


@variant("llama-3-factors-biases-tied", "llama", G=4)
def llama3(t: Tiny) -> None:
    t.start(rope__freq_base=500000.0)
    t.tensors["rope_freqs.weight"] = np.linspace(1, 8, t.K // 2).astype(np.float32)
    for i in range(t.L):
        t.attention(f"blk.{i}.", biases="qkvo")
        t.ffn(f"blk.{i}.")
    t.end(tied=True)


@variant("llama-experts", "llama", E=8, k=3, L=2)
def mixtral(t: Tiny) -> None:
    llama(t)


@variant("llama-yarn", "llama", L=2)
def yarn(t: Tiny) -> None:
    llama(t)
    t.key(rope__scaling__type="yarn", rope__scaling__factor=8.0, rope__scaling__original_context_length=64)


@variant("llama-linear", "llama", L=2)
def linear(t: Tiny) -> None:
    llama(t)
    t.key(rope__scaling__type="linear", rope__scaling__factor=4.0)


# ---- qwen ----


@variant("qwen2", "qwen2")
@variant("qwen2-seven-to-one", "qwen2", H=7, G=1, D=112, L=2)
def qwen2(t: Tiny) -> None:
    t.start(rope__freq_base=1000000.0)
    for i in range(t.L):
        t.attention(f"blk.{i}.", biases="qkv")
        t.ffn(f"blk.{i}.")
    t.end(tied=t.G == 1)


@variant("qwen3", "qwen3", K=32)
@variant("qwen3-tied", "qwen3", H=6, G=3, L=2)
@variant("qwen3moe", "qwen3moe", E=12, k=4, F=48)
@variant("qwen3moe-one-expert", "qwen3moe", E=4, k=1, F=40, K=24, L=2)
def qwen3(t: Tiny) -> None:
    t.start(rope__freq_base=1000000.0)
    for i in range(t.L):
        t.attention(f"blk.{i}.", norms=True)
        t.ffn(f"blk.{i}.")
    t.end(tied=t.H == 6)


# ---- gemma3 ----


def gemma3(t: Tiny, *, gate_gain: float, post_gain: float) -> None:
    t.start(rope__freq_base=1000000.0, attention__sliding_window=20)
    t.tensors["token_embd.weight"] /= np.float32(t.D**0.5 / 4)  # the model scales it back
    for i in range(t.L):
        t.attention(f"blk.{i}.", norms=True)
        t.ffn(f"blk.{i}.", gate_gain=gate_gain)
        t.gain(f"blk.{i}.post_attention_norm", t.D)
        t.gain(f"blk.{i}.post_ffw_norm", t.D, post_gain)
    t.end(tied=True)


@variant("gemma3", "gemma3", L=7, K=32)
def gemma3_soft(t: Tiny) -> None:
    """Gates where GELU bends. llama.cpp's GELU is a half-precision table (errors of 5e-4): a small gain behind it helps."""
    gemma3(t, gate_gain=1.0, post_gain=0.02)


@variant("gemma3-steep-scaled", "gemma3", L=8, H=6, G=2)
def gemma3_steep(t: Tiny) -> None:
    """Gates so large that GELU is 0 or x, which llama.cpp computes exactly; so the branch can have its full weight."""
    gemma3(t, gate_gain=3000.0, post_gain=1.0)
    t.key(rope__scaling__type="linear", rope__scaling__factor=8.0, attention__sliding_window=33)
    t.key(final_logit_softcapping=30.0, rope__freq_base_swa=5000.0)


# ---- muse-spark ----


@variant("muse-spark", "muse-spark", E=8, k=3, L=6, H=8, scale=1.25, normed=True)
@variant("muse-spark-unnormed-weights", "muse-spark", E=6, k=2, L=4, G=1, scale=1.0, normed=False)
def muse_spark(t: Tiny) -> None:
    full = [i % 4 == 1 for i in range(t.L)]
    latent = 32
    t.start(
        post_norm_epsilon=1e-8, attention__sliding_window=9, attention__sliding_window_pattern=[not f for f in full],
        rope__freq_base=500000.0, rope__freq_base_swa=500000.0, final_logit_softcapping=20.0, logit_scale=0.5,
        moe_latent_size=latent, expert_weights_scale=t.scale, expert_weights_norm=t.normed, expert_gating_func=2,
    )  # fmt: skip
    for i in range(t.L):
        p = f"blk.{i}."
        t.attention(p, norms=True)
        t.mat(p + "attn_gate", t.H * t.K, t.D)
        t.gain(p + "ffn_norm", t.D)
        t.gain(p + "post_ffw_norm", t.D)
        t.mat(p + "ffn_gate_inp", t.E, t.D, gain=3.0)
        t.bias(p + "exp_probs_b", t.E, spread=0.2)
        t.mat(p + "ffn_latent_down", latent, t.D)
        t.mat(p + "ffn_latent_up", t.D, latent)
        t.gain(p + "ffn_pre_exp_norm", latent)
        t.gain(p + "ffn_post_exp_norm", latent)
        t.mat(p + "ffn_gate_exps", t.E, t.F, latent)
        t.mat(p + "ffn_up_exps", t.E, t.F, latent)
        t.mat(p + "ffn_down_exps", t.E, latent, t.F)
        for half in ("attn", "ffn"):
            t.gain(p + half + "_resid_alpha", t.D, 0.8)
            t.gain(p + half + "_resid_beta", t.D, 0.6)
    t.end(gain=8.0)
