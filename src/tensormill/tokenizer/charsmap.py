"""SentencePiece's compiled character map: longest-prefix replacements from an XOR-compressed double array.

Layout of `tokenizer.ggml.precompiled_charsmap`: u32 size, then size bytes of u32 units, then NUL-ended replacements.
A unit: base in bits 10-30 (shifted by 8 more when bit 9 is set), label in bits 0-7 and 31, leaf in bit 8.
"""

from __future__ import annotations

import numpy as np

from tensormill.errors import TokenizerError

_KEY = "tokenizer.ggml.precompiled_charsmap"


class CharsMap:
    """Callable: text → normalised text. Tokens in `kept` (user-defined) pass as they are."""

    def __init__(self, blob: object, kept: list[str]) -> None:
        self._units, self._texts = _parse(blob)
        self._kept = {t[:i] for t in kept for i in range(1, len(t) + 1)}
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """Replace from left to right, always the longest prefix that the map knows."""
        if not len(self._units):
            return text
        raw = text.encode()
        out: list[bytes] = []
        at = 0
        while at < len(raw):
            length, replacement = self._kept_prefix(raw, at) or self._longest(raw, at)
            if not length:
                length = _width(raw[at])
                replacement = raw[at : at + length]
            out.append(replacement)
            at += length
        return b"".join(out).decode("utf-8", "replace")

    def _kept_prefix(self, raw: bytes, at: int) -> tuple[int, bytes] | None:
        if not self._kept:
            return None
        length, end = 0, at
        while end < len(raw):
            end += _width(raw[end])
            if raw[at:end].decode() not in self._kept:
                break
            length = end - at
        return (length, raw[at : at + length]) if length else None

    def _longest(self, raw: bytes, at: int) -> tuple[int, bytes]:
        node = self._base(0)
        length, found = 0, 0
        for end in range(at, len(raw)):
            byte = raw[end]
            if not byte:
                break
            node ^= byte
            unit = self._unit(node)
            if unit & 0x800000FF != byte:
                break
            node ^= self._base(node)
            if unit >> 8 & 1:
                length, found = end - at + 1, self._unit(node) & 0x7FFFFFFF
        return (length, self._replacement(found)) if length else (0, b"")

    def _unit(self, node: int) -> int:
        if node >= len(self._units):
            raise TokenizerError(f"{_KEY} is corrupt: node {node} of {len(self._units)}")
        return self._units[node]

    def _base(self, node: int) -> int:
        unit = self._unit(node)
        return (unit >> 10) << ((unit & 0x200) >> 6)

    def _replacement(self, offset: int) -> bytes:
        end = self._texts.find(b"\0", offset) if offset < len(self._texts) else -1
        if end < 0:
            raise TokenizerError(f"{_KEY} is corrupt: replacement at {offset} of {len(self._texts)} bytes")
        return self._texts[offset:end]


def _width(lead: int) -> int:
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _parse(blob: object) -> tuple[list[int], bytes]:
    if blob is None:
        return [], b""
    try:
        raw = (np.asarray(blob, dtype=np.int64) & 0xFF).astype(np.uint8).tobytes()
    except (TypeError, ValueError, OverflowError):
        raise TokenizerError(f"{_KEY} is not an array of bytes") from None
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or size % 4 or size + 4 >= len(raw):
        raise TokenizerError(f"{_KEY} of {len(raw)} bytes is corrupt: it states a table of {size} bytes")
    return np.frombuffer(raw, "<u4", size // 4, 4).tolist(), raw[4 + size :]
