"""The hyperparameters of a model: typed, bounded reads of `<arch>.key` with the defaults that GGUF files rely on.

Model files read them by the shape letters (`c.D`, `c.H`, …) or by key (`c.whole("moe_latent_size")`). A missing or odd
value is a ModelError that names the key, what was found and what was expected. Nothing here knows an architecture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from tensormill.errors import ModelError

MOST = 2**31 - 1
MOST_WIDE = 1 << 16  # heads, head sizes, blocks: far above any model, far below what could exhaust memory


class _Required:
    """Stands for "no default"."""


REQUIRED = _Required()


class Hyper:
    """Keys of one file; `context` is the context length asked for, where it differs from the file's.

    Letters: D model width, L blocks of the main program, H query heads, G KV heads, K and Kv head sizes of keys and values,
    F ffn width, E experts, k experts a token, `rot` rotated dimensions, `eps` of the norms, `window` (0: none).
    """

    def __init__(self, metadata: Mapping[str, object], *, context: int | None = None) -> None:
        self._metadata = metadata
        arch = metadata.get("general.architecture")
        if not isinstance(arch, str) or not arch:
            raise ModelError(f"the key general.architecture is {_found(arch)}; expected the name of an architecture")
        self.arch = arch
        self._context = context

    # ---- typed reads ----

    def __contains__(self, key: str) -> bool:
        return f"{self.arch}.{key}" in self._metadata

    def raw(self, key: str) -> object:
        """The value as the file has it; None if there is none."""
        return self._metadata.get(f"{self.arch}.{key}")

    def whole(self, key: str, default: int | _Required = REQUIRED, *, least: int = 0, most: int = MOST) -> int:
        """A whole number from `least` to `most`; an array whose layers all agree counts as one number."""
        value = _one(self.raw(key))
        if value is None and isinstance(default, int):
            return default
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not least <= value <= most:
            raise self.odd(key, f"a whole number from {least} to {most}")
        return int(value)

    def number(self, key: str, default: float | _Required = REQUIRED, *, least: float = -math.inf) -> float:
        """A finite number, not below `least`."""
        value = _one(self.raw(key))
        if value is None and isinstance(default, (int, float)):
            return float(default)
        if not isinstance(value, (int, float, np.number)) or isinstance(value, bool):
            raise self.odd(key, "a number")
        if not math.isfinite(value) or value < least:
            raise self.odd(key, "a finite number" + (f" of at least {least:g}" if least > -math.inf else ""))
        return float(value)

    def flag(self, key: str, default: bool | _Required = REQUIRED) -> bool:
        """True or false."""
        value = self.raw(key)
        if value is None and isinstance(default, bool):
            return default
        if not isinstance(value, (bool, np.bool_)):
            raise self.odd(key, "true or false")
        return bool(value)

    def text(self, key: str, default: str | _Required = REQUIRED) -> str:
        """A string."""
        value = self.raw(key)
        if value is None and isinstance(default, str):
            return default
        if not isinstance(value, str):
            raise self.odd(key, "a string")
        return value

    def each(self, key: str, default: float | _Required = REQUIRED) -> tuple[Any, ...]:
        """One value a block: the file's array, or its single value (or the default) repeated."""
        value = self.raw(key)
        value = default if value is None else value
        if isinstance(value, (int, float, bool)):
            return (value,) * self.blocks
        if not isinstance(value, np.ndarray) or value.ndim != 1 or len(value) < self.blocks:
            raise self.odd(key, f"a number, or an array of one for each of {self.blocks} blocks")
        return tuple(value[: self.blocks].tolist())

    def odd(self, key: str, expected: str) -> ModelError:
        """The error for a key that has a value other than the expected one."""
        return ModelError(f"the key {self.arch}.{key} is {_found(self.raw(key))}; expected {expected}")

    # ---- sizes ----

    @cached_property
    def D(self) -> int:
        """Width of the residual stream."""
        return self.whole("embedding_length", least=1)

    @cached_property
    def blocks(self) -> int:
        """All blocks of the file, NextN blocks included."""
        return self.whole("block_count", least=1, most=MOST_WIDE)

    @cached_property
    def nextn(self) -> int:
        """Blocks at the end that predict further tokens; the main program leaves them out."""
        return self.whole("nextn_predict_layers", 0, most=self.blocks - 1)

    @property
    def L(self) -> int:
        """Blocks of the main program."""
        return self.blocks - self.nextn

    @cached_property
    def H(self) -> int:
        """Query heads."""
        return self.whole("attention.head_count", least=1, most=MOST_WIDE)

    @cached_property
    def G(self) -> int:
        """Key and value heads."""
        heads = self.whole("attention.head_count_kv", self.H, least=1, most=MOST_WIDE)
        if self.H % heads:
            raise self.odd("attention.head_count_kv", f"a divisor of attention.head_count, {self.H}")
        return heads

    @cached_property
    def K(self) -> int:
        """Size of a key head."""
        return self._head("attention.key_length")

    @cached_property
    def Kv(self) -> int:
        """Size of a value head."""
        return self._head("attention.value_length")

    def _head(self, key: str) -> int:
        if key not in self and self.D % self.H:
            raise self.odd(key, f"a head size, since embedding_length {self.D} is no multiple of {self.H} heads")
        return self.whole(key, self.D // self.H, least=1, most=MOST_WIDE)

    @cached_property
    def F(self) -> int:
        """Width inside the feed-forward part."""
        return self.whole("feed_forward_length", least=1)

    @cached_property
    def E(self) -> int:
        """Experts; 0 for a dense model."""
        return self.whole("expert_count", 0, most=MOST_WIDE)

    @cached_property
    def k(self) -> int:
        """Experts a token uses."""
        return self.whole("expert_used_count", least=1, most=self.E)

    @cached_property
    def rot(self) -> int:
        """Dimensions of a head that RoPE rotates."""
        return self.rotated("rope.dimension_count", self.K)

    def rotated(self, key: str, default: int) -> int:
        """A count of rotated dimensions: even, at most a head's `default`."""
        n = self.whole(key, default, least=2, most=default)
        if n % 2:
            raise self.odd(key, "an even number")
        return n

    @cached_property
    def eps(self) -> float:
        """Added under the root of an RMS norm."""
        return self.number("attention.layer_norm_rms_epsilon", least=0.0)

    @cached_property
    def window(self) -> int:
        """Tokens a sliding layer sees, itself included; 0: all."""
        return self.whole("attention.sliding_window", 0)

    @cached_property
    def context(self) -> int:
        """The context length asked for, else the one the model was made for."""
        return self._context or self.whole("context_length", 0)

    def sliding(self, default: int = 0) -> tuple[bool, ...]:
        """Which blocks slide, from `attention.sliding_window_pattern`: a flag each, or n (every n-th block is full)."""
        key = "attention.sliding_window_pattern"
        value = self.raw(key)
        if isinstance(value, np.ndarray):
            return tuple(bool(v) for v in self.each(key))
        n = self.whole(key, default)
        return tuple(n > 0 and i % n < n - 1 for i in range(self.blocks))


def _one(value: object) -> object:
    """An array of equal numbers → that number."""
    if isinstance(value, np.ndarray) and value.size and (value == value.flat[0]).all():
        return value.flat[0]
    return value


def _found(value: object) -> str:
    if value is None:
        return "missing"
    if isinstance(value, np.ndarray):
        return f"an array of {value.size}, {str(value[:8].tolist())[:80]}"
    return repr(value)[:80]
