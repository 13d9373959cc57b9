"""The printed program: blocks that are equal stand once, with the types of their weights and what they cost."""

from __future__ import annotations

import re

import models.zoo  # noqa: F401  fills VARIANTS
from models.held import Held
from tensormill import models as room
from tensormill.gguf import GGMLType, TensorInfo
from tensormill.program import Program


def shown(variant: str) -> str:
    return str(room.trace(Held(variant))["main"])


def test_equal_blocks_stand_once() -> None:
    text = shown("llama")
    assert text.count("attn_q.weight") == 1
    assert "block 0–2: 3 equal blocks" in text
    assert text.startswith("program main: 68 ops in 3 blocks\n")


def test_sliding_and_full_blocks_stand_apart() -> None:
    text = shown("gemma3")
    assert "block 0–4, 6: 6 equal blocks" in text and "block 5: reads" in text
    assert "attention(rope, @kv (window 20))" in text and "attention(rope, @kv)" in text


def test_every_op_of_one_block_and_its_weight_is_there() -> None:
    program: Program = room.trace(Held("muse-spark"))["main"]
    text = str(program)
    for weight in {re.sub(r"blk\.\d+\.", "", w.name) for w in program.weights}:
        assert weight in text
    for kind in {op.kind for op in program.ops} - {"unary"}:
        assert f"= {kind}(" in text
    assert "norm=sum  eps=1e-15  scale=1.25" in text
    assert "logits = affine" in text


def test_types_that_differ_between_equal_blocks_are_counted() -> None:
    class Mixed(Held):
        @property
        def tensors(self) -> dict[str, TensorInfo]:
            found = super().tensors
            name = "blk.1.ffn_down.weight"
            return found | {name: TensorInfo(name, GGMLType.Q8_0, found[name].shape, 0, 0)}

    line = next(line for line in str(room.trace(Mixed("llama"))["main"]).splitlines() if "ffn_down.weight" in line)
    assert "F32×2, Q8_0×1 [64, 96]" in line


def test_bytes_and_operations_are_those_of_the_weights() -> None:
    text = shown("llama")
    weights = 4 * (2 * 96 * 64 + 64 + 3 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64))
    assert f"weights: {weights / 1000:.3g} kB (F32 {weights / 1000:.3g} kB)" in text
