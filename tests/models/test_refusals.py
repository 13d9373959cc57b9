"""Files that do not fit their architecture are refused in words that name the tensor or key, at once and in little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import models.zoo  # noqa: F401  fills VARIANTS
from models import tiny
from models.held import Held
from tensormill import models as room
from tensormill.errors import ModelError
from tensormill.gguf import GGUFFile

OPTIONAL = ("rope_freqs.weight", "_q.bias", "_k.bias", "_v.bias", "_qkv.bias", "_output.bias", "exp_probs_b.bias")
ODD: list[object] = [None, 0, -1, 3, 10**9, 2**40, -5.0, 0.0, 1e30, float("nan"), float("inf"), "x", True, np.array([1, 2])]
ODD += [np.array([], np.int32), np.array([7] * 100), np.zeros((2, 2)), ["a"], np.array([0.5] * 8)]
ALL = pytest.mark.parametrize("variant", [name for name, v in tiny.VARIANTS.items() if v.sizes.get("L", 0) < 10])


def refusal(file: Held) -> str:
    with pytest.raises(ModelError) as caught:
        room.trace(file)
    return str(caught.value)


def traced_or_refused(file: Held, *, watch_memory: bool) -> bool:
    """Whether it was traced; any error but ModelError fails the test, so does slowness and greed."""
    if watch_memory:
        tracemalloc.start()
    begin = time.process_time()
    try:
        room.trace(file)
    except ModelError:
        return False
    else:
        return True
    finally:
        assert time.process_time() - begin < 2.0
        if watch_memory:
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
            tracemalloc.stop()


def one_of_each(variant: str) -> list[tuple[str, np.ndarray]]:
    """The tensors, of equal ones in several blocks only the last."""
    named = {name.split(".", 2)[-1] if name.startswith("blk.") else name: (name, a) for name, a in Held(variant).arrays.items()}
    return list(named.values())


def names_the_place(tensor: str, message: str) -> bool:
    """Whether a message names the tensor, or something in its block."""
    return tensor.removesuffix(".weight") in message or (tensor.startswith("blk.") and "blk." in message)


def test_every_architecture_has_two_variants() -> None:
    for arch in room.known():
        assert sum(v.arch == arch for v in tiny.VARIANTS.values()) >= 2, arch


@ALL
def test_a_file_from_disk_is_traced(variant: str, tmp_path: Path) -> None:
    tiny.write(variant, tmp_path / "tiny.gguf")
    with GGUFFile(tmp_path / "tiny.gguf") as file:
        program = room.trace(file)["main"]
        assert {v.recipe.name for v in program.weights if v.recipe} | {"rope_freqs.weight"} >= set(file.tensors)
    assert program.outputs["logits"].shape == ("R", tiny.VOCABULARY)
    assert program.outputs["hidden"].shape[0] == "R"


def test_an_unknown_architecture_lists_the_known_ones_close_ones_first() -> None:
    file = Held("qwen3moe")
    file.metadata["general.architecture"] = "qwen3-moe"
    message = refusal(file)
    assert "'qwen3-moe'" in message
    assert message.index("qwen3moe") < message.index("gemma3")
    assert all(arch in message for arch in room.known())


@pytest.mark.parametrize("name", ["os.path", "registry", "hyper", "blocks", "", "../llama", "llama\0", "x" * 10**6])
def test_an_architecture_is_never_looked_up_elsewhere(name: str) -> None:
    file = Held("llama")
    file.metadata["general.architecture"] = name
    assert len(refusal(file)) < 500


@ALL
def test_each_missing_tensor_is_named(variant: str) -> None:
    for name, _ in one_of_each(variant):
        file = Held(variant)
        del file.arrays[name]
        if name == "output.weight" or name.endswith(OPTIONAL):
            room.trace(file)
        else:
            assert names_the_place(name, refusal(file))


def harmless(name: str, old: np.ndarray, new: np.ndarray) -> bool:
    """A vocabulary may have any size; a norm may have gains for each head."""
    return (name == "token_embd.weight" and old.shape[1:] == new.shape[1:]) or (old.ndim == 1 and new.ndim == 2)


@ALL
def test_each_misshapen_tensor_is_refused(variant: str) -> None:
    changes: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda a: np.concatenate([a, a[..., :1]], axis=-1),
        lambda a: np.concatenate([a, a[:1]]),
        lambda a: a[..., :-1],
        lambda a: a.reshape(-1),
        lambda a: np.stack([a, a]),
    ]
    for name, whole in one_of_each(variant):
        for change in changes:
            file = Held(variant)
            file.arrays[name] = change(whole)
            if file.arrays[name].shape != whole.shape and not harmless(name, whole, file.arrays[name]):
                message = refusal(file)
                assert names_the_place(name, message) or "token_embd" in message or "output" in message, message


def test_left_over_tensors_are_named_with_a_hint() -> None:
    file = Held("llama")
    file.arrays["blk.1.attn_sinks.weight"] = np.zeros(4, np.float32)
    message = refusal(file)
    assert "blk.1.attn_sinks.weight" in message and "variant" in message


def test_old_files_may_carry_rotation_tensors_that_nobody_needs() -> None:
    file = Held("llama")
    file.arrays["blk.0.attn_rot_embd.weight"] = np.zeros(8, np.float32)
    room.trace(file)


@ALL
def test_odd_keys_are_refused_or_harmless(variant: str) -> None:
    for key in Held(variant).metadata:
        for odd in ODD:
            file = Held(variant)
            file.metadata[key] = odd
            traced_or_refused(file, watch_memory=isinstance(odd, (int, float)) and odd > 10**6)


@pytest.mark.parametrize(
    ("key", "odd"),
    [
        ("block_count", 10**9), ("block_count", 2), ("block_count", 0), ("attention.head_count", 0),
        ("attention.head_count", 10**9), ("attention.head_count_kv", 3), ("attention.key_length", 10**12),
        ("rope.dimension_count", 7), ("rope.dimension_count", 18), ("rope.freq_base", -1.0), ("rope.scaling.type", "odd"),
        ("attention.layer_norm_rms_epsilon", float("nan")), ("embedding_length", "wide"), ("expert_count", -1),
    ],
)  # fmt: skip
def test_the_key_what_was_found_and_what_was_expected(key: str, odd: object) -> None:
    file = Held("llama")
    file.metadata["llama." + key] = odd
    message = refusal(file)
    assert f"llama.{key} is {odd!r}; expected " in message


def test_blocks_that_predict_further_tokens_are_left_out() -> None:
    file = Held("qwen35")
    whole = str(room.trace(file)["main"])
    file.metadata |= {"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    file.arrays["blk.4.nextn.eh_proj.weight"] = np.zeros((64, 128), np.float32)
    assert str(room.trace(file)["main"]) == whole


def test_a_missing_key_is_named() -> None:
    file = Held("llama")
    del file.metadata["llama.attention.layer_norm_rms_epsilon"]
    assert "llama.attention.layer_norm_rms_epsilon is missing; expected " in refusal(file)
