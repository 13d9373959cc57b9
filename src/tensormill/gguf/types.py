"""The one geometry table of ggml tensor types: id, elements per block, bytes per block.

What the bytes of a block mean is in `tensormill.quant`. Names and ids are those of ggml.h.
"""

from __future__ import annotations

from enum import IntEnum


class GGMLType(IntEnum):
    """A tensor type by its ggml id; `block` elements are stored in `block_bytes` bytes."""

    block: int
    block_bytes: int

    def __new__(cls, value: int, block: int, block_bytes: int) -> GGMLType:
        """Members are written `id, block, block_bytes`; the id alone is the value."""
        self = int.__new__(cls, value)
        self._value_ = value
        self.block = block
        self.block_bytes = block_bytes
        return self

    F32 = 0, 1, 4
    F16 = 1, 1, 2
    Q4_0 = 2, 32, 18
    Q4_1 = 3, 32, 20
    Q5_0 = 6, 32, 22
    Q5_1 = 7, 32, 24
    Q8_0 = 8, 32, 34
    Q8_1 = 9, 32, 36
    Q2_K = 10, 256, 84
    Q3_K = 11, 256, 110
    Q4_K = 12, 256, 144
    Q5_K = 13, 256, 176
    Q6_K = 14, 256, 210
    Q8_K = 15, 256, 292
    IQ2_XXS = 16, 256, 66
    IQ2_XS = 17, 256, 74
    IQ3_XXS = 18, 256, 98
    IQ1_S = 19, 256, 50
    IQ4_NL = 20, 32, 18
    IQ3_S = 21, 256, 110
    IQ2_S = 22, 256, 82
    IQ4_XS = 23, 256, 136
    I8 = 24, 1, 1
    I16 = 25, 1, 2
    I32 = 26, 1, 4
    I64 = 27, 1, 8
    F64 = 28, 1, 8
    IQ1_M = 29, 256, 56
    BF16 = 30, 1, 2
    TQ1_0 = 34, 256, 54
    TQ2_0 = 35, 256, 66
    MXFP4 = 39, 32, 17
    NVFP4 = 40, 64, 36
    Q1_0 = 41, 128, 18
    Q2_0 = 42, 64, 18

    @property
    def bits_per_weight(self) -> float:
        """Bits that one element takes on average."""
        return 8 * self.block_bytes / self.block

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of `columns` elements; ValueError if the row is not a whole number of blocks."""
        if columns % self.block:
            raise ValueError(f"a {self.name} row needs a multiple of {self.block} elements, not {columns}")
        return columns // self.block * self.block_bytes


TYPE_BY_ID: dict[int, GGMLType] = {int(kind): kind for kind in GGMLType}
