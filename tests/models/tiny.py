"""Tiny random f32 models, one or more variants an architecture, the same bytes at every call (seeded; goldens keep the sha256).

Small enough to run in a fraction of a second, odd enough that a wrong head count, norm or rotation cannot hide.
What each consists of is in `zoo.py`; `make_goldens.py` runs them through llama.cpp, `test_logits.py` through the backends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tensormill.gguf import GGUFWriter

VOCABULARY = 96
TOKENS = 150  # more than two pages of 64, far beyond every window
Builder = Callable[["Tiny"], None]


class Tiny:
    """Keys and tensors of one model; `mat` and `gain` draw from one generator in the order of the calls."""

    def __init__(self, arch: str, seed: int, **sizes: Any) -> None:
        self.arch = arch
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.keys: dict[str, Any] = {}
        self.tensors: dict[str, np.ndarray] = {}
        self.D, self.H, self.G, self.K, self.F, self.L, self.V = 64, 4, 2, 16, 96, 3, VOCABULARY
        self.E = self.k = 0
        self.__dict__ |= sizes

    def key(self, **values: Any) -> None:
        """Add `<arch>.key` for each; `__` stands for a dot."""
        self.keys |= {f"{self.arch}.{k.replace('__', '.')}": v for k, v in values.items()}

    def mat(self, name: str, *shape: int, gain: float = 1.0) -> None:
        """A matrix [rows, columns], or one an expert, whose products keep their size at gain 1."""
        self.tensors[name + ".weight"] = (gain / shape[-1] ** 0.5 * self.rng.standard_normal(shape)).astype(np.float32)

    def gain(self, name: str, n: int, mean: float = 1.0, spread: float = 0.3) -> None:
        """A norm's gains."""
        self.tensors[name + ".weight"] = (mean * (1 + spread * self.rng.standard_normal(n))).astype(np.float32)

    def bias(self, name: str, *shape: int, spread: float = 0.5) -> None:
        """A bias."""
        self.tensors[name + ".bias"] = (spread * self.rng.standard_normal(shape)).astype(np.float32)

    def start(self, **keys: Any) -> None:
        """The keys that every architecture has, and the embedding."""
        self.key(
            context_length=512, embedding_length=self.D, block_count=self.L, feed_forward_length=self.F, vocab_size=self.V,
            attention__head_count=self.H, attention__head_count_kv=self.G, attention__key_length=self.K,
            attention__value_length=self.K, attention__layer_norm_rms_epsilon=1e-5, rope__dimension_count=self.K,
        )  # fmt: skip
        if self.E:
            self.key(expert_count=self.E, expert_used_count=self.k, expert_feed_forward_length=self.F)
        self.key(**keys)
        self.tensors["token_embd.weight"] = self.rng.standard_normal((self.V, self.D)).astype(np.float32)

    def attention(self, p: str, *, norms: bool = False, biases: str = "") -> None:
        """q, k, v and output, with head norms and biases if wanted (`biases`: some of "qkvo")."""
        sizes = {"q": self.H * self.K, "k": self.G * self.K, "v": self.G * self.K}
        self.gain(p + "attn_norm", self.D)
        for part, n in sizes.items():
            self.mat(p + "attn_" + part, n, self.D, gain=1.5)
            if part in biases:
                self.bias(p + "attn_" + part, n)
        self.mat(p + "attn_output", self.D, self.H * self.K)
        if "o" in biases:
            self.bias(p + "attn_output", self.D)
        if norms:
            self.gain(p + "attn_q_norm", self.K, 1.5)
            self.gain(p + "attn_k_norm", self.K)

    def ffn(self, p: str, *, gate_gain: float = 1.0) -> None:
        """A gated feed-forward part, or experts."""
        self.gain(p + "ffn_norm", self.D)
        stack, suffix = ((self.E,), "_exps") if self.E else ((), "")
        if self.E:
            self.mat(p + "ffn_gate_inp", self.E, self.D, gain=2.0)
        self.mat(p + "ffn_gate" + suffix, *stack, self.F, self.D, gain=gate_gain)
        self.mat(p + "ffn_up" + suffix, *stack, self.F, self.D)
        self.mat(p + "ffn_down" + suffix, *stack, self.D, self.F)

    def end(self, *, tied: bool = False, gain: float = 3.0) -> None:
        """The last norm and the head; under a tied head the embedding is small, lest each token see little but itself."""
        self.gain("output_norm", self.D)
        if tied:
            self.tensors["token_embd.weight"] *= np.float32(0.25)
        else:
            self.mat("output", self.V, self.D, gain=gain)

    def write(self, path: Path) -> str:
        """Write the file; its sha256."""
        writer = GGUFWriter(path)
        writer.add("general.architecture", self.arch)
        writer.add("tokenizer.ggml.model", "no_vocab")
        for key, value in self.keys.items():
            writer.add(key, value)
        for name, data in self.tensors.items():
            writer.add_tensor(name, data)
        writer.write()
        return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Variant:
    """How a tiny model is made: its architecture, what is odd about its sizes, and what it consists of."""

    arch: str
    build: Callable[[Tiny], None]
    sizes: dict[str, Any]

    def made(self, name: str) -> Tiny:
        tiny = Tiny(self.arch, crc32(name.encode()), **self.sizes)
        self.build(tiny)
        return tiny


VARIANTS: dict[str, Variant] = {}


def variant(name: str, arch: str, **sizes: Any) -> Callable[[Builder], Builder]:
    """Register a builder as a variant."""

    def register(builder: Builder) -> Builder:
        VARIANTS[name] = Variant(arch, builder, sizes)
        return builder

    return register


def write(name: str, path: Path) -> str:
    """Write a variant's file; its sha256."""
    return VARIANTS[name].made(name).write(path)


def tokens(name: str, n: int = TOKENS) -> np.ndarray:
    """Random tokens for a variant, [n] int32."""
    rng = np.random.Generator(np.random.PCG64(crc32(name.encode()) + 1))
    return rng.integers(0, VOCABULARY, n, dtype=np.int32)
