"""Passes on a small traced model: what moves, merges and fuses, and that the memory plan never overlaps living values."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tensormill.errors import ModelError, ProgramError
from tensormill.gguf import GGMLType
from tensormill.program import Limits, Op, Program, Recipe, Scope, Tracer, Value
from tensormill.program.passes import fuse, merge, move_rows_up, plan_memory, prepare, remove_dead


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    type: GGMLType = GGMLType.Q4_0


D, H, G, K, F, V = 64, 4, 2, 16, 96, 128


def tensors(layers: int) -> dict[str, Tensor]:
    block = {
        "attn_norm": (D,), "attn_q": (H * K, D), "attn_k": (G * K, D), "attn_v": (G * K, D), "attn_output": (D, H * K),
        "ffn_norm": (D,), "ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F),
    }  # fmt: skip
    out = {f"blk.{i}.{n}.weight": Tensor(s) for i in range(layers) for n, s in block.items()}
    return out | {
        "token_embd.weight": Tensor((V, D)),
        "output_norm.weight": Tensor((D,)),
        "blk.0.attn_q.bias": Tensor((H * K,)),
    }


def traced(layers: int = 2) -> Program:
    g = Tracer("main", dict(tensors(layers)))
    w = Scope(g)
    x = g.embed(g.step.tokens, w.token_embd)
    cs = g.angles([1.0] * (K // 2))
    for i in range(layers):
        b = w.block(i)
        h = g.rms_norm(x, b.attn_norm)
        q, k = (g.rope(g.heads(g.linear(h, m), n), cs) for m, n in ((b.attn_q, H), (b.attn_k, G)))
        kv = g.paged("kv", k=[G, K], v=[G, K])
        g.kv_write(kv, k=k, v=g.heads(g.linear(h, b.attn_v), G))
        x = x + g.linear(g.flat(g.attention(q, [kv], scale=K**-0.5)), b.attn_output)
        h = g.rms_norm(x, b.ffn_norm)
        x = x + g.linear(g.silu(g.linear(h, b.ffn_gate)) * g.linear(h, b.ffn_up), b.ffn_down)
    g.prefix = ""
    x = g.rms_norm(g.gather_rows(x, g.step.out_rows), w.output_norm)
    return g.program(logits=g.linear(x, w.token_embd))


def kinds(program: Program) -> list[str]:
    return [op.kind for op in program.ops]


def test_sidecar_bias_comes_along() -> None:
    first = next(op for op in traced().ops if op.kind == "linear")
    assert first.inputs[2] is not None and first.inputs[2].name == "blk.0.attn_q.bias"


def test_the_gather_moves_up_to_the_last_attention() -> None:
    program = move_rows_up(traced())
    ops = program.ops
    attention = max(i for i, op in enumerate(ops) if op.kind == "attention")
    gathers = [i for i, op in enumerate(ops) if op.kind == "gather_rows"]
    assert len(gathers) == 2 and min(gathers) > attention  # the residual and the attention's result
    assert all(op.outputs[0].shape[0] == "R" for op in ops[max(gathers) + 1 :])
    assert program.outputs["logits"].shape == ("R", V)
    assert ops[-1].outputs[0] is program.outputs["logits"]


def test_dead_code_goes_and_cache_writes_stay() -> None:
    program = traced()
    program.outputs = {"hidden": program.ops[0].outputs[0]}
    left = kinds(remove_dead(program))
    assert left.count("kv_write") == 2 and "attention" in left  # block 1's keys need block 0's attention
    assert left.count("attention") == 1


def test_linears_with_one_input_merge_across_types() -> None:
    merged = merge(traced(1), frozenset({"linears"}))
    parts = [op.attrs["parts"] for op in merged.ops if op.kind == "linears"]
    assert parts == [3, 2]
    assert [len(op.body) for op in merged.ops if op.kind == "linears"] == parts


def test_chains_fuse_and_keep_values_that_others_read() -> None:
    offers = frozenset({"linears", "add+rms_norm+quantise", "rms_norm+quantise", "unary+mul+quantise", "rope+kv_write"})
    program = prepare(traced(), offers, lambda w: w.recipe is not None and w.recipe.cuts[0].type is GGMLType.Q4_0)
    names = kinds(program)
    assert names.count("rms_norm+quantise") == 1 and names.count("add+rms_norm+quantise") == 4
    assert names.count("unary+mul+quantise") == 2 and names.count("rope+kv_write") == 2
    fused = next(op for op in program.ops if op.kind == "add+rms_norm+quantise")
    assert [v.dtype for v in fused.outputs] == ["f32", "q8"]  # the residual goes on, the norm itself nobody reads
    made = {v for op in program.ops for v in op.outputs}
    assert all(v in made or v.role != "temp" for op in program.ops for v in op.values)


def test_a_chain_whose_value_is_read_too_early_stays() -> None:
    g = Tracer("main", {})
    x = g.embed(g.step.tokens, Value("table", (V, D), role="weight"))
    y = g.add(x, x)
    early = g.mul(y, y)
    late = g.rms_norm(g.add(early, x))
    program = Program("p", (*g.ops[:3], *g.ops[3:]), {"y": g.rms_norm(y), "late": late})
    program.ops = tuple(g.ops)
    result = kinds(fuse(program, frozenset({"add+rms_norm"})))
    assert result == ["embed", "add", "mul", "add+rms_norm", "rms_norm"]


def test_living_values_never_overlap() -> None:
    program = prepare(traced(3))
    limits = Limits(tokens=7, rows=3)

    def size(v: Value) -> int:
        n = 4
        for d in v.shape:
            n *= d if isinstance(d, int) else limits.size(d)
        return n

    plan = plan_memory(program, size)
    uses: dict[Value, list[int]] = {}
    for i, op in enumerate(program.ops):
        for v in (*op.values, *op.outputs):
            if v.role == "temp":
                uses.setdefault(v, []).append(i)
    spans = [(plan.offsets[v], plan.offsets[v] + size(v), min(u), max(u), v) for v, u in uses.items()]
    for n, (a, b, first, last, v) in enumerate(spans):
        assert b <= plan.size
        for c, d, first2, last2, other in spans[n + 1 :]:
            if max(first, first2) <= min(last, last2) and max(a, c) < min(b, d):
                views = {op.outputs[0]: op.inputs[0] for op in program.ops if op.kind == "reshape"}
                assert views.get(other) is v or views.get(v) is other or views.get(v) is views.get(other)
    assert plan.size < sum(size(v) for v in uses) / 3


def test_a_value_that_several_ops_fill_has_one_place() -> None:
    """Products of mixed types fill parts of one output; what they read must not lie there meanwhile."""
    x, out, codes = (Value(name, (64,)) for name in ("x", "out", "codes"))
    ops = (Op("make", (), (x,)), Op("quantise", (x,), (codes,)), Op("half", (codes,), (out,)), Op("half", (x,), (out,)))
    offsets = plan_memory(Program("records", ops, {"0": out}), lambda v: 256).offsets
    assert len({offsets[v] for v in (x, out, codes)}) == 3


def test_recipes_cut_whole_blocks() -> None:
    whole = Recipe.whole("w", GGMLType.Q4_K, (64, 512))
    assert whole.rows(16, 32).cols(256, 512).shape == (16, 256)
    with pytest.raises(ProgramError, match="cut a Q4_K block"):
        whole.cols(0, 100)
    with pytest.raises(ProgramError, match="outside"):
        whole.rows(60, 70)
    experts = Recipe.whole("e", GGMLType.F32, (4, 8, 16)).rows(0, 4)
    assert experts.shape == (4, 4, 16) and experts.cuts[0].experts == (0, 4)


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(ModelError, match=r"blk\.0\.attn_k\.weight"):
        Scope(Tracer("main", {})).block(0).attn_k  # noqa: B018


def test_misfits_are_refused() -> None:
    g = Tracer("main", dict(tensors(1)))
    x = g.embed(g.step.tokens, Scope(g).token_embd)
    with pytest.raises(ProgramError, match="not as wide"):
        g.linear(x, Scope(g).block(0).ffn_down)
    with pytest.raises(ProgramError, match="broadcast"):
        g.add(x, g.reshape(x, 4, 16))
