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
@variant("muse-spark-unnormed-weights-fused-qkv", "muse-spark", E=6, k=2, L=4, G=1, scale=1.0, normed=False)
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
        if not t.normed:
            join(t, p + "attn_qkv.weight", [p + f"attn_{part}.weight" for part in "qkv"], axis=0)
            t.bias(p + "attn_qkv", (t.H + 2 * t.G) * t.K)
    t.end(gain=8.0)


def join(t: Tiny, name: str, parts: list[str], axis: int) -> None:
    """Some tensors as one, as certain converters write them."""
    t.tensors[name] = np.concatenate([t.tensors.pop(part) for part in parts], axis=axis)


# ---- deepseek2 ----


@variant("deepseek2-groups-yarn", "deepseek2", E=8, k=3, F=40, L=3, q_lora=24, lora=32, rot=16, nope=24, v=20, v3=True)
@variant("deepseek2-lite", "deepseek2", E=6, k=2, F=16, L=26, H=3, q_lora=0, lora=32, rot=8, nope=16, v=12, v3=False)
@variant("deepseek2-legacy", "deepseek2", E=6, k=2, F=40, L=2, G=4, q_lora=24, lora=32, rot=8, nope=16, v=16, v3=False)
def deepseek2(t: Tiny) -> None:
    """llama.cpp knows the small models, whose queries are of full rank, by their 26 or 27 blocks."""
    split, dense = t.G != t.H, 96
    t.K = t.nope + t.rot
    t.start(
        feed_forward_length=dense, attention__kv_lora_rank=t.lora, rope__dimension_count=t.rot, leading_dense_block_count=1,
        attention__value_length=t.v, expert_shared_count=2, expert_weights_scale=2.5 if t.v3 else 1.0,
        expert_weights_norm=t.v3, expert_gating_func=2 if t.v3 else 1,
    )  # fmt: skip
    if split:
        t.key(attention__key_length=t.lora + t.rot, attention__value_length=t.lora, attention__head_count_kv=1)
        t.key(attention__key_length_mla=t.K, attention__value_length_mla=t.v)
    if t.q_lora:
        t.key(attention__q_lora_rank=t.q_lora)
    if t.v3:
        t.key(expert_group_count=4, expert_group_used_count=2, rope__scaling__type="yarn", rope__scaling__factor=40.0)
        t.key(rope__scaling__original_context_length=64, rope__scaling__yarn_log_multiplier=0.1)
    for i in range(t.L):
        p = f"blk.{i}."
        t.gain(p + "attn_norm", t.D)
        if t.q_lora:
            t.mat(p + "attn_q_a", t.q_lora, t.D)
            t.gain(p + "attn_q_a_norm", t.q_lora)
        t.mat(p + ("attn_q_b" if t.q_lora else "attn_q"), t.H * t.K, t.q_lora or t.D, gain=2.0)
        t.mat(p + "attn_kv_a_mqa", t.lora + t.rot, t.D)
        t.gain(p + "attn_kv_a_norm", t.lora)
        if split:
            t.mat(p + "attn_k_b", t.H, t.lora, t.nope)
            t.mat(p + "attn_v_b", t.H, t.v, t.lora)
        else:
            t.mat(p + "attn_kv_b", t.H * (t.nope + t.v), t.lora)
        t.mat(p + "attn_output", t.D, t.H * t.v)
        if i:
            t.ffn(p)
            shared(t, p, 2 * t.F)
            if t.v3:
                t.bias(p + "exp_probs_b", t.E, spread=0.2)
        else:
            E, F, t.E, t.F = t.E, t.F, 0, dense
            t.ffn(p)
            t.E, t.F = E, F
    t.end()


def shared(t: Tiny, p: str, width: int) -> None:
    """A shared expert."""
    t.mat(p + "ffn_gate_shexp", width, t.D)
    t.mat(p + "ffn_up_shexp", width, t.D)
    t.mat(p + "ffn_down_shexp", t.D, width)


# ---- qwen35, qwen3next ----


@variant("qwen35", "qwen35", L=4, n=2, vh=4, S=16, rot=8)
@variant("qwen35-listed-layers", "qwen35", L=3, n=1, vh=3, S=16, rot=16, listed=[True, False, True])
@variant("qwen35moe", "qwen35moe", L=4, n=2, vh=6, S=16, rot=8, E=8, k=3, F=40)
@variant("qwen35moe-as-many-key-heads-fused-experts", "qwen35moe", L=4, n=4, vh=4, S=24, rot=8, E=6, k=2, F=40, G=1)
@variant("qwen3next", "qwen3next", L=4, n=2, vh=6, S=16, rot=8, E=8, k=3, F=40)
@variant("qwen3next-all-but-one-rotated", "qwen3next", L=4, n=3, vh=6, S=16, rot=14, E=6, k=2, F=40)
def qwen35(t: Tiny) -> None:
    inner = t.vh * t.S
    t.start(
        rope__freq_base=1000000.0, rope__dimension_count=t.rot, ssm__conv_kernel=4, ssm__state_size=t.S, ssm__group_count=t.n,
        ssm__time_step_rank=t.vh, ssm__inner_size=inner, full_attention_interval=4,
    )  # fmt: skip
    if t.arch != "qwen3next":
        t.key(rope__dimension_sections=[len(range(part, t.rot // 2, 3)) for part in range(3)] + [0])
    if t.E:
        t.key(expert_shared_feed_forward_length=t.F)
    recurs = getattr(t, "listed", [(i + 1) % 4 != 0 for i in range(t.L)])
    if hasattr(t, "listed"):
        t.key(attention__recurrent_layers=t.listed)
    for i in range(t.L):
        p = f"blk.{i}."
        if recurs[i]:
            delta_net(t, p, inner)
        else:
            t.attention(p, norms=True)
            t.mat(p + "attn_q", 2 * t.H * t.K, t.D, gain=1.5)
        t.ffn(p)
        t.tensors[p + "post_attention_norm.weight"] = t.tensors.pop(p + "ffn_norm.weight")
        if t.E:
            shared(t, p, t.F)
            t.mat(p + "ffn_gate_inp_shexp", t.D)
            t.tensors[p + "ffn_gate_inp_shexp.weight"] *= 3
        if t.S == 24:
            join(t, p + "ffn_gate_up_exps.weight", [p + "ffn_gate_exps.weight", p + "ffn_up_exps.weight"], axis=1)
    t.end()


def delta_net(t: Tiny, p: str, inner: int) -> None:
    channels = inner + 2 * t.n * t.S
    t.gain(p + "attn_norm", t.D)
    t.mat(p + "attn_qkv", channels, t.D)
    t.mat(p + "attn_gate", inner, t.D)
    t.mat(p + "ssm_conv1d", channels, 4, gain=1.5)
    if t.arch == "qwen3next":
        t.mat(p + "ssm_ba", 2 * t.vh, t.D)
    else:
        t.mat(p + "ssm_beta", t.vh, t.D)
        t.mat(p + "ssm_alpha", t.vh, t.D)
    t.bias(p + "ssm_dt", t.vh)
    t.tensors[p + "ssm_a"] = -np.exp(t.rng.uniform(-2, 1, t.vh)).astype(np.float32)
    t.gain(p + "ssm_norm", t.S)
    t.mat(p + "ssm_out", t.D, inner)
