"""A vocabulary as the file states it: tokens, kinds, scores, special ids and flags, checked once, with llama.cpp's defaults.

Nothing here encodes or decodes. Which tokens end an answer and which kinds are corrected by text: endings.py.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tensormill.errors import TokenizerError

log = logging.getLogger(__name__)
PREFIX = "tokenizer.ggml."
MAX_TOKEN_CHARS = 1 << 16
MAX_TOKENS = 1 << 24


class Kind(IntEnum):
    """`tokenizer.ggml.token_type`. UNDEFINED also stands for numbers that the format does not know."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# defaults of (bos, eos, unk, sep, pad) where the file names no id
_DEFAULT_IDS: dict[str, tuple[int | None, ...]] = {
    "llama": (1, 2, 0, None, None),
    "gpt2": (11, 11, None, None, None),
    "whitespace": (11, 11, None, None, None),
    "gemma4": (None, None, None, None, None),
    "bert": (101, None, 100, 102, 0),
    "t5": (None, 1, 2, None, 0),
}
_ID_KEYS = {"unk": "unknown", "sep": "seperator", "pad": "padding"}  # the format's spelling
_ID_NAMES = [
    "bos",
    "eos",
    "unk",
    "sep",
    "pad",
    "eot",
    "eom",
    "cls",
    "mask",
    "fim_pre",
    "fim_suf",
    "fim_mid",
    "fim_pad",
    "fim_rep",
    "fim_sep",
]
_MUST_FIT = {"bos", "eos", "eot", "eom"}  # a wrong one of these would change prompts or never stop


@dataclass
class Vocab:
    """Tokens and settings of one file. `kinds` is uint8[n]; `scores` float32[n] or None; `ids` by short name (bos, eos, …)."""

    model: str
    tokens: list[str]
    kinds: npt.NDArray[np.uint8]
    scores: npt.NDArray[np.float32] | None
    index: dict[str, int]
    ids: dict[str, int | None]
    metadata: Mapping[str, object] = field(repr=False)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean key of the tokenizer."""
        value = self.metadata.get(PREFIX + name, default)
        if not isinstance(value, (bool, int, np.bool_, np.integer)):
            raise TokenizerError(f"{PREFIX}{name} is {value!r}, expected true or false")
        return bool(value)

    def of_kind(self, *kinds: Kind) -> list[int]:
        """Ids of these kinds, ascending."""
        mask = np.isin(self.kinds, np.array(kinds, np.uint8))
        return [int(i) for i in np.flatnonzero(mask)]

    def byte_tokens(self) -> list[int | None]:
        """Id of `<0xXX>` for each of the 256 bytes, where there is one."""
        return [self.index.get(f"<0x{b:02X}>") for b in range(256)]


def strings(metadata: Mapping[str, object], name: str) -> list[str]:
    """A string array of the tokenizer; TokenizerError when it is missing or anything else."""
    value = metadata.get(PREFIX + name)
    if value is None:
        raise TokenizerError(f"the file has no {PREFIX}{name}: it holds no tokenizer that can encode text")
    if not isinstance(value, list) or not set(map(type, value)) <= {str}:
        raise TokenizerError(f"{PREFIX}{name} is not an array of strings")
    return value


def read_vocab(metadata: Mapping[str, object]) -> Vocab:
    """Read and check the vocabulary; TokenizerError says which key is wrong and how."""
    model = metadata.get(PREFIX + "model")
    if not isinstance(model, str):
        raise TokenizerError(f"the file has no {PREFIX}model: it holds no tokenizer")
    if model not in _DEFAULT_IDS:
        raise TokenizerError(
            f"tokenizer kind {model!r} ({PREFIX}model) is not supported; supported: {', '.join(sorted(_DEFAULT_IDS))}"
        )
    tokens, index = _tokens(metadata)
    vocab = Vocab(model, tokens, _kinds(metadata, len(tokens)), _scores(metadata, len(tokens)), index, {}, metadata)
    for name, default in zip(_ID_NAMES, _DEFAULT_IDS[model] + (None,) * len(_ID_NAMES), strict=False):
        vocab.ids[name] = _special_id(metadata, name, default, len(tokens))
    for token_id in vocab.of_kind(Kind.BYTE):
        byte_of(tokens[token_id])
    return vocab


def byte_of(token: str) -> int:
    """The byte that a `<0xXX>` token stands for."""
    try:
        if len(token) != 6 or not token.startswith("<0x"):
            raise ValueError
        return int(token[3:5], 16)
    except ValueError:
        raise TokenizerError(f"byte token {token[:32]!r} is not of the form <0xXX>") from None


def _tokens(metadata: Mapping[str, object]) -> tuple[list[str], dict[str, int]]:
    tokens = strings(metadata, "tokens")
    if not 0 < len(tokens) <= MAX_TOKENS:
        raise TokenizerError(f"{PREFIX}tokens has {len(tokens)} entries, expected 1 to {MAX_TOKENS}")
    if max(map(len, tokens)) > MAX_TOKEN_CHARS:
        raise TokenizerError(f"{PREFIX}tokens has an entry of over {MAX_TOKEN_CHARS} characters")
    index = dict(zip(tokens, range(len(tokens)), strict=True))
    if "" in index:
        tokens = [t or f"[EMPTY_{i}]" for i, t in enumerate(tokens)]
        index = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(index) != len(tokens):
        twice = next(t for i, t in enumerate(tokens) if index[t] != i)
        raise TokenizerError(f"{PREFIX}tokens has {twice[:64]!r} twice")
    return tokens, index


def _numbers(metadata: Mapping[str, object], name: str, n: int) -> npt.NDArray[np.float64] | None:
    value = metadata.get(PREFIX + name)
    if value is None:
        return None
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TokenizerError(f"{PREFIX}{name} is not an array of numbers") from None
    if numbers.ndim != 1 or len(numbers) < n:
        raise TokenizerError(f"{PREFIX}{name} has {numbers.size} entries for {n} tokens")
    return numbers[:n]


def _kinds(metadata: Mapping[str, object], n: int) -> npt.NDArray[np.uint8]:
    numbers = _numbers(metadata, "token_type", n)
    if numbers is None:
        return np.full(n, Kind.NORMAL, np.uint8)
    return np.where((numbers >= 1) & (numbers <= 6), numbers, 0).astype(np.uint8)


def _scores(metadata: Mapping[str, object], n: int) -> npt.NDArray[np.float32] | None:
    numbers = _numbers(metadata, "scores", n)
    if numbers is None:
        return None
    if not np.isfinite(numbers).all():
        raise TokenizerError(f"{PREFIX}scores has a value that is not a finite number")
    return numbers.astype(np.float32)


def _special_id(metadata: Mapping[str, object], name: str, default: int | None, n: int) -> int | None:
    key = f"{PREFIX}{_ID_KEYS.get(name, name)}_token_id"
    value = metadata.get(key)
    fallback = default if default is not None and default < n else None
    if value is None:
        return fallback
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(float(value)):
        raise TokenizerError(f"{key} is {value!r}, expected a token id")
    if 0 <= int(value) < n:
        return int(value)
    if name in _MUST_FIT:
        raise TokenizerError(f"{key} is {value}, but the vocabulary has {n} tokens")
    log.warning("%s is %s, but the vocabulary has %d tokens; ignored", key, value, n)
    return fallback
