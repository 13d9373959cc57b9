"""What the reference executable promises beside numbers: refusals, poison, fused bodies, names, progress."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ops import sketches
from ops.driver import Driver, Feed, whole
from ops.tiny import Memory
from tensormill.backends.reference import compile
from tensormill.errors import BackendError, ProgramError
from tensormill.program import Limits, Op, Program, Run, Scope, Tracer, Value, WeightSource, build_step

LIMITS = Limits(tokens=8, sequences=2, rows=8, pages={0: 3, 4: 3}, page=8, kv_type="f32")


def test_an_unknown_op_and_a_missing_lifetime_are_refused_by_name() -> None:
    m = sketches.llama(window=4)
    with pytest.raises(BackendError, match="lifetime 4"):
        compile(m.program, m.source, replace(LIMITS, pages={0: 3}))
    odd = Program("odd", (Op("conv3d", (), (Value("y", ("T",)),)),), {})
    with pytest.raises(BackendError, match="conv3d"):
        compile(odd, m.source, LIMITS)
    with pytest.raises(BackendError, match="no multiple of ratio 8"):
        compile(sketches.deepseek4().program, sketches.deepseek4().source, replace(LIMITS, page=4, pages={0: 3, 10: 3}))


def test_what_the_scheduler_owes_is_checked() -> None:
    m = sketches.llama()
    executable = compile(m.program, m.source, LIMITS)
    with pytest.raises(ProgramError, match="9 tokens"):
        executable.run(build_step([Run(range(9), pages={0: [1, 2]})]))
    for pages in ([], [0], [1]):
        with pytest.raises(ProgramError, match="no page"):
            executable.run(build_step([Run(range(2), past=8 if pages == [1] else 0, pages={0: pages})]))
    recurrent = compile(sketches.qwen35().program, sketches.qwen35().source, replace(LIMITS, drafts=1))
    with pytest.raises(ProgramError, match="drafts"):
        recurrent.run(build_step([Run(range(4), sure=2, slot=1)]))


def test_forgotten_rows_are_poison() -> None:
    """A past that was never written is NaN, not zero: the tests above could not see a wrong page otherwise."""
    m = sketches.llama()
    out = compile(m.program, m.source, LIMITS).run(build_step([Run([1], past=3, pages={0: [1]})]))
    assert np.isnan(out["logits"]).all()


def test_values_are_named_and_end_in_the_outputs() -> None:
    d = Driver(sketches.llama())
    step = build_step([Run([1, 2, 3], pages={0: [1]})])
    values = d.executable.values(step)
    np.testing.assert_array_equal(values["logits"], d.executable.run(step)["logits"])
    assert values["blk.1.ffn_down"].shape == (3, 24) and values["blk.0.attention"].shape == (3, 4, 8)


def test_a_fused_op_runs_its_body() -> None:
    m = sketches.llama()
    step = build_step([Run([1, 2, 3], pages={0: [1]})])
    expected = compile(m.program, m.source, LIMITS).run(step)["logits"]
    ops = list(m.program.ops)
    at = next(i for i, op in enumerate(ops) if op.kind == "unary")
    body = (ops[at], ops[at + 1], ops[at + 2])  # silu, linear, mul
    hidden = {v for op in body for v in op.outputs}
    inputs = tuple(dict.fromkeys(v for op in body for v in op.values if v not in hidden))
    fused = Op("glu", inputs, body[-1].outputs, {}, body)
    program = Program("fused", (*ops[:at], fused, *ops[at + 3 :]), m.program.outputs)
    np.testing.assert_array_equal(compile(program, m.source, LIMITS).run(step)["logits"], expected)


def test_a_wrong_spec_cannot_pass() -> None:
    m = sketches.llama()
    ops = list(m.program.ops)
    at, op = next((i, op) for i, op in enumerate(ops) if op.kind == "linear")
    ops[at] = replace(op, outputs=(replace(op.outputs[0], shape=("T", 7)),))
    with pytest.raises(ProgramError, match=r"made \[2, 32\] where its spec says \[2, 7\]"):
        compile(Program("wrong", tuple(ops), {}), m.source, LIMITS).run(build_step([Run([1, 2], pages={0: [1]})]))


@pytest.mark.parametrize("name", ["llama", "qwen35", "mamba", "deepseek4"])
def test_float64_agrees_and_chunks_to_its_own_precision(name: str) -> None:
    m = getattr(sketches, name)()
    tokens = np.random.default_rng(3).integers(0, 31, 30).tolist()
    exact = whole(m, tokens, precision=np.float64)
    np.testing.assert_allclose(whole(m, tokens), exact, atol=1e-4 * np.ptp(exact))
    d = Driver(m, precision=np.float64)
    t = d.track()
    for i in range(0, 30, 4):
        d.feed(Feed(t, tokens[i : i + 4]))
    np.testing.assert_allclose([t.logits[i] for i in range(30)], exact, atol=1e-11)


def test_half_precision_pages_round_what_is_read() -> None:
    m = sketches.llama()
    step = build_step([Run([1, 2, 3, 4], pages={0: [1]}, want=range(4))])
    exact = compile(m.program, m.source, LIMITS).run(step)["logits"]
    half = compile(m.program, m.source, replace(LIMITS, kv_type="f16")).run(step)["logits"]
    error = np.abs(half - exact).max() / np.ptp(exact)
    assert 1e-6 < error < 1e-3


def test_progress_counts_bytes_of_the_file() -> None:
    m = sketches.llama()
    seen: list[tuple[int, int]] = []
    compile(m.program, m.source, LIMITS, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == sum(v.recipe.shape[0] * v.recipe.shape[1] * 4 for v in m.program.weights if v.recipe)
    assert [done for done, _total in seen] == sorted(done for done, _total in seen)


def test_media_rows_and_tied_tables() -> None:
    file = Memory({"token_embd.weight": (9, 4)})
    g = Tracer("media", dict(file.tensors))
    w = Scope(g)
    x = g.put_rows(g.embed(g.step.tokens, w.token_embd), g.step.media_rows, g.step.make("media", ("M", 4), "f32"))
    executable = compile(g.program(logits=g.linear(x, w.token_embd)), WeightSource(file), replace(LIMITS, media=2))
    media = np.ones((2, 4), np.float32)
    step = replace(build_step([Run([1, 2, 3])]), media_rows=np.array([0, 2], np.int32), media=media)
    rows = np.stack([media[0], file.arrays["token_embd.weight"][2], media[1]])
    np.testing.assert_allclose(executable.run(step)["logits"], rows @ file.arrays["token_embd.weight"].T, rtol=1e-5)
