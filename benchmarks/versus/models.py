"""The files of the comparison: four real models, and random ones in the shape of models that nobody needs to download.

A random file has valid blocks of random codes with scales that make weights of about 0.02, so no number overflows and speed is
that of a real file. The blocks of one megabyte or so are repeated. Files are made from a fixed seed; those of the types, which
would take 19 GB together, only for as long as they are measured.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tensormill.gguf import GGMLType, GGUFWriter
from tensormill.quant import decode

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path.home() / ".cache" / "tensormill" / "bench-models"
REAL = {"smollm2": 8192, "gemma3": 32768, "qwen-coder-0.5b": 32768, "qwen-coder-1.5b": 32768}  # name → trained context
HALVES = {  # offsets of the float16 fields of a block
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ1_S": (0,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,), "IQ4_NL": (0,),
    "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
TYPES = (*HALVES, "IQ1_M", "MXFP4", "NVFP4", "F16", "BF16")
RMS = 0.02  # of a weight
BLOCKS = 1 << 13  # random ones that are repeated


@dataclass(frozen=True)
class Shape:
    """A llama or, with experts, a qwen3moe; vocabulary and context are the same for all."""

    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int = 32768
    experts: int = 0
    used: int = 0


SHAPES = {
    "1b": Shape(2048, 8192, 16, 32, 8, 64, vocabulary=128256),  # Llama-3.2-1B
    "8b": Shape(4096, 14336, 32, 32, 8, 128, vocabulary=128256),  # Llama-3.1-8B
    "moe": Shape(2048, 768, 22, 16, 4, 128, experts=32, used=4),  # Qwen3-30B-A3B with fewer experts and layers
}


def path_of(name: str) -> Path:
    """The file of a model by name: a real one (fetched), or random:SHAPE:TYPE (made)."""
    if name in REAL:
        fetch = [sys.executable, str(ROOT / "tests" / "get_models.py"), name]
        return Path(subprocess.run(fetch, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    if Path(name).exists():
        return Path(name)
    path = random_path(name)
    if not path.exists():
        _, shape, kind = name.split(":")
        FOLDER.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_suffix(".partial")
        write(partial_path, SHAPES[shape], GGMLType[kind])
        partial_path.replace(path)
    return path


def random_path(name: str) -> Path:
    """Where the file of a random:SHAPE:TYPE is, or will be."""
    _, shape, kind = name.split(":")
    return FOLDER / f"random-{shape}-{SHAPES[shape].layers}-layers-{kind}.gguf"


@contextmanager
def lent(name: str) -> Iterator[Path]:
    """The file of a model; one of a type is removed afterwards unless it was there before."""
    passing = name.startswith("random:1b:") and not random_path(name).exists()
    path = path_of(name)
    try:
        yield path
    finally:
        if passing:
            path.unlink()


def blocks(kind: GGMLType, count: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random valid blocks [count, block_bytes] of weights of about RMS."""
    rng = np.random.Generator(np.random.PCG64(seed))
    if kind in (GGMLType.F16, GGMLType.BF16):
        values = rng.normal(0, RMS, count).astype(np.float32)
        bits = values.astype(np.float16).view(np.uint16) if kind is GGMLType.F16 else (values.view(np.uint32) >> 16)
        return bits.astype("<u2").view(np.uint8).reshape(count, 2)
    made = rng.integers(0, 256, (count, kind.block_bytes), dtype=np.uint8)
    _put_scale(kind, made, 1.0)
    size = float(np.sqrt(np.mean(np.square(decode(kind, made[:64].reshape(1, -1)), dtype=np.float64))))
    _put_scale(kind, made, RMS / size)
    return made


def _put_scale(kind: GGMLType, made: np.ndarray[Any, np.dtype[np.uint8]], scale: float) -> None:
    half = np.array([scale], "<f2").view(np.uint8)
    for at in HALVES.get(kind.name, ()):
        made[:, at : at + 2] = half
    if kind is GGMLType.IQ1_M:  # four nibbles of the half float lie above the scales of four 64s
        bits = int(half.view("<u2")[0])
        for k in range(4):
            made[:, 49 + 2 * k] = made[:, 49 + 2 * k] & 15 | (bits >> 4 * k & 15) << 4
    if kind is GGMLType.MXFP4:
        made[:, 0] = np.clip(128 + np.floor(np.log2(scale)), 1, 254)  # the power of two below, doubled: codes are halves
    if kind is GGMLType.NVFP4:
        made[:, :4] = min(max(round(scale * 512), 1), 56)  # unsigned E4M3: up to 7 its steps are 1/512, 56 is 1


def write(path: Path, shape: Shape, kind: GGMLType) -> None:
    """A whole model whose matrices are all of one type; its token embedding serves as output too."""
    writer = GGUFWriter(path)
    arch = "qwen3moe" if shape.experts else "llama"
    for key, value in _keys(shape, arch).items():
        writer.add(key, value)
    some = blocks(kind, BLOCKS)
    for name, axes in _matrices(shape).items():
        columns = axes[-1]
        nbytes = int(np.prod(axes[:-1])) * kind.row_bytes(columns)
        writer.add_tensor(name, partial(np.resize, some.reshape(-1), nbytes), kind, axes)
    for name, size in _norms(shape).items():
        writer.add_tensor(name, np.ones(size, np.float32))
    rng = np.random.Generator(np.random.PCG64(2))
    for layer in range(shape.layers if shape.experts else 0):  # tokens choose evenly
        gate = rng.normal(0, RMS, (shape.experts, shape.width)).astype(np.float32)
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", gate)
    writer.write()


def _keys(shape: Shape, arch: str) -> dict[str, object]:
    keys: dict[str, object] = {
        "general.architecture": arch,
        "general.name": path_name(shape),
        "tokenizer.ggml.model": "no_vocab",
        f"{arch}.vocab_size": shape.vocabulary,
        f"{arch}.context_length": 32768,
        f"{arch}.embedding_length": shape.width,
        f"{arch}.block_count": shape.layers,
        f"{arch}.feed_forward_length": shape.hidden,
        f"{arch}.attention.head_count": shape.heads,
        f"{arch}.attention.head_count_kv": shape.kv_heads,
        f"{arch}.attention.key_length": shape.head,
        f"{arch}.attention.value_length": shape.head,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{arch}.rope.dimension_count": shape.head,
        f"{arch}.rope.freq_base": 500000.0,
    }
    if shape.experts:
        keys[f"{arch}.expert_count"] = shape.experts
        keys[f"{arch}.expert_used_count"] = shape.used
        keys[f"{arch}.expert_feed_forward_length"] = shape.hidden
    return keys


def path_name(shape: Shape) -> str:
    """A name for people."""
    return f"random {shape.width}x{shape.layers}" + (f", {shape.experts} experts" if shape.experts else "")


def _matrices(s: Shape) -> dict[str, tuple[int, ...]]:
    experts, tail = ((s.experts,), "_exps") if s.experts else ((), "")
    made: dict[str, tuple[int, ...]] = {"token_embd.weight": (s.vocabulary, s.width)}
    for layer in range(s.layers):
        block = f"blk.{layer}."
        made |= {
            f"{block}attn_q.weight": (s.heads * s.head, s.width),
            f"{block}attn_k.weight": (s.kv_heads * s.head, s.width),
            f"{block}attn_v.weight": (s.kv_heads * s.head, s.width),
            f"{block}attn_output.weight": (s.width, s.heads * s.head),
            f"{block}ffn_gate{tail}.weight": (*experts, s.hidden, s.width),
            f"{block}ffn_up{tail}.weight": (*experts, s.hidden, s.width),
            f"{block}ffn_down{tail}.weight": (*experts, s.width, s.hidden),
        }
    return made


def _norms(s: Shape) -> dict[str, int]:
    made: dict[str, int] = {"output_norm.weight": s.width}
    for layer in range(s.layers):
        block = f"blk.{layer}."
        made |= {f"{block}attn_norm.weight": s.width, f"{block}ffn_norm.weight": s.width}
        if s.experts:
            made |= {f"{block}attn_q_norm.weight": s.head, f"{block}attn_k_norm.weight": s.head}
    return made
