"""How golden ids are kept and compared: small, yet naming the text that fails.

`crc`: CRC-32 of the ids of every text, twice: plain, then with BOS and special tokens parsed. `ids`, `ends`: the ids of
the hand-written texts in the second way, one after the other (real vocabularies only). `stops`: ids that end an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from tokenizer_corpus import TEXTS, fuzz

FOLDER = Path(__file__).parent / "data" / "tokenizer"
FUZZED = 250
Encode = Callable[[str, bool], list[int]]  # text, with special tokens


def corpus() -> list[str]:
    """All texts of the goldens."""
    return TEXTS + fuzz(FUZZED)


def digest(ids: list[int]) -> int:
    """CRC-32 of the ids as little-endian int32."""
    return crc32(np.array(ids, "<i4").tobytes())


def digests(encode: Encode) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """uint32[2, texts]."""
    return np.array([[digest(encode(text, special)) for text in corpus()] for special in (False, True)], np.uint32)


def failures(encode: Encode, golden: Mapping[str, Any]) -> list[str]:
    """A line for each text whose ids differ."""
    texts = corpus()
    wrong = np.argwhere(digests(encode) != golden["crc"])
    lines = [f"{'special' if special else 'plain'}: {texts[i]!r}" for special, i in wrong]
    if "ids" in golden:
        parts = np.split(golden["ids"], golden["ends"][:-1])
        for text, expected in zip(TEXTS, parts, strict=True):
            found = encode(text, True)
            if found != expected.tolist():
                lines.append(f"{text!r}: {found[:40]}, expected {expected.tolist()[:40]}")
    return lines
