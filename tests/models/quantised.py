"""Tiny models stored in every weight type: encoded from Gaussian weights where `quant.encode` can, else valid random blocks.

A random block has random codes and scales that give its weights the size they should have; what a block means is known to
`quant.decode` alone, so only the places of scales are written here. `test_quantised.py` compares such models with llama.cpp.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from zlib import crc32

import numpy as np

from models.tiny import Tiny
from tensormill.gguf import GGMLType as G
from tensormill.gguf import GGUFWriter
from tensormill.quant import ENCODABLE, decode, encode

VOCABULARY = 320
POSITIONS = 512
TYPES = (
    G.F16, G.BF16, G.Q4_0, G.Q4_1, G.Q5_0, G.Q5_1, G.Q8_0, G.Q2_K, G.Q3_K, G.Q4_K, G.Q5_K, G.Q6_K,
    G.IQ1_S, G.IQ1_M, G.IQ2_XXS, G.IQ2_XS, G.IQ2_S, G.IQ3_XXS, G.IQ3_S, G.IQ4_NL, G.IQ4_XS,
    G.TQ1_0, G.TQ2_0, G.MXFP4, G.NVFP4, G.Q1_0, G.Q2_0,
)  # fmt: skip
# Types whose products round activations as llama.cpp's do: int8 of each 32 inputs by their maximum (its scales are float16,
# ours float32). Of other types it rounds 256 inputs by one maximum, or all to float16 or bfloat16, where we do not.
ROUNDED_ALIKE = (G.Q4_0, G.Q4_1, G.Q5_0, G.Q5_1, G.Q8_0, G.IQ4_NL, G.MXFP4, G.NVFP4, G.Q1_0, G.Q2_0)
HALF_AT = {  # where the float16 scale of a random block lies
    G.Q3_K: 108, G.IQ1_S: 0, G.IQ2_XXS: 0, G.IQ2_XS: 0, G.IQ2_S: 0, G.IQ3_XXS: 0, G.IQ3_S: 0, G.IQ4_NL: 0, G.IQ4_XS: 0,
    G.TQ1_0: 52, G.TQ2_0: 64, G.Q1_0: 0, G.Q2_0: 0,
}  # fmt: skip
CODE_AT = {G.MXFP4: (0, 1, 2), G.NVFP4: (0, 4, 8)}  # scale bytes from, to; how many neighbouring codes are drawn


def stored(kind: G, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """uint8 [..., row_bytes] of weights [..., columns]: these, or random ones of their size."""
    rows = values.reshape(-1, values.shape[-1])
    made = encode(kind, rows) if kind in ENCODABLE else _random(kind, len(rows), rows.shape[-1], _size(values), rng)
    return made.reshape(*values.shape[:-1], -1)


def _random(kind: G, rows: int, columns: int, size: float, rng: np.random.Generator) -> np.ndarray:
    blocks = rng.integers(0, 256, (rows * columns // kind.block, kind.block_bytes), dtype=np.uint8)
    if kind in CODE_AT:
        return _with_codes(kind, blocks, size, rng).reshape(rows, -1)
    spread = rng.choice([-1.0, 1.0], len(blocks)) * np.exp(0.2 * rng.standard_normal(len(blocks))) / 64
    if kind is G.Q2_K:
        blocks[:, :16] = blocks[:, :16] >> 4 | blocks[:, :16] & 0xF0  # every min is 1.5 of its scale: weights around zero
    _put_scales(kind, blocks, spread)
    _put_scales(kind, blocks, spread * (size / _size(decode(kind, blocks))))
    return blocks.reshape(rows, -1)


def _put_scales(kind: G, blocks: np.ndarray, d: np.ndarray) -> None:
    if kind is G.Q2_K:
        _half(blocks, 80, d)
        _half(blocks, 82, 1.5 * d)
    elif kind is G.IQ1_M:
        _scattered_half(blocks, d)
    else:
        _half(blocks, HALF_AT[kind], d)


def _size(values: np.ndarray) -> float:
    """Root of the mean square, to three digits: the same on every machine."""
    return float(f"{np.sqrt(np.square(values, dtype=np.float64).mean()):.3g}")


def _half(blocks: np.ndarray, at: int, d: np.ndarray) -> None:
    blocks[:, at : at + 2] = d.astype("<f2").view(np.uint8).reshape(-1, 2)


def _scattered_half(blocks: np.ndarray, d: np.ndarray) -> None:
    """IQ1_M: a nibble of the scale above each of four words of block scales."""
    bits, words = d.astype("<f2").view("<u2"), blocks[:, 48:56].copy().view("<u2")
    for k in range(4):
        words[:, k] = words[:, k] & 0x0FFF | (bits >> 4 * k & 15) << 12
    blocks[:, 48:56] = words.view(np.uint8)


def _with_codes(kind: G, blocks: np.ndarray, size: float, rng: np.random.Generator) -> np.ndarray:
    """Scales are codes of a byte each: those neighbours that come nearest to the wanted size."""
    start, end, many = CODE_AT[kind]
    drawn = rng.integers(0, many, (len(blocks), end - start), dtype=np.uint8)

    def off(base: int) -> float:
        blocks[:64, start:end] = base + drawn[:64]
        return abs(float(np.log(_size(decode(kind, blocks[:64])) / size)))

    blocks[:, start:end] = min(range(1, 127 - many), key=off) + drawn
    return blocks


def quantisable(name: str, values: np.ndarray, kind: G) -> bool:
    """Whether files have this tensor in other types than F32, and its rows are whole blocks of the type."""
    small = ("norm", "ssm_conv1d", "ffn_gate_inp", "rope_freqs", "resid", "ssm_a")
    return values.ndim >= 2 and not any(s in name for s in small) and values.shape[-1] % kind.block == 0


def numbers(kind: G) -> range:
    """The files of a type: more where only chance decides which engine is nearer to the truth."""
    return range(4 if kind in ROUNDED_ALIKE else 1)


def made(kind: G, number: int) -> tuple[Tiny, dict[str, np.ndarray]]:
    """A llama of three blocks, and its matrices (head and embedding too) as rows of the type."""
    t = Tiny("llama", crc32(kind.name.encode()) + 1000 * number, D=256, H=8, G=4, K=32, F=512, L=3, V=VOCABULARY)
    t.start(rope__freq_base=10000.0, context_length=1024)
    for i in range(t.L):
        t.attention(f"blk.{i}.")
        t.ffn(f"blk.{i}.")
    t.end()
    rows = {n: stored(kind, v, t.rng) for n, v in t.tensors.items() if quantisable(n, v, kind)}
    return t, rows


def tokens(kind: G, number: int) -> np.ndarray:
    """Random tokens, [POSITIONS] int32."""
    rng = np.random.Generator(np.random.PCG64(crc32(kind.name.encode()) + 1000 * number + 1))
    return rng.integers(0, VOCABULARY, POSITIONS, dtype=np.int32)


def write(kind: G, number: int, path: Path) -> str:
    """Write one of a type's files; its sha256."""
    t, rows = made(kind, number)
    writer = GGUFWriter(path)
    writer.add("general.architecture", t.arch)
    writer.add("tokenizer.ggml.model", "no_vocab")
    for key, value in t.keys.items():
        writer.add(key, value)
    for name, values in t.tensors.items():
        if name in rows:
            writer.add_tensor(name, rows[name], kind)
        else:
            writer.add_tensor(name, values)
    writer.write()
    return hashlib.sha256(path.read_bytes()).hexdigest()
