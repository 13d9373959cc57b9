"""Weight recipes: which rows and columns of which GGUF tensors make a weight.

Model files and passes cut and join recipes and never touch bytes; `weights.py` turns a recipe into file ranges, so that every
rank and stage reads only what it uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensormill.errors import ProgramError
from tensormill.gguf.types import GGMLType

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows and columns of one tensor; of a 3-D tensor [E, O, I] the same rows and columns of experts `experts`."""

    tensor: str
    type: GGMLType
    rows: Range
    cols: Range
    experts: Range | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """Cuts joined along their rows; `transposed` swaps rows and columns after joining (small float weights only)."""

    cuts: tuple[Cut, ...]
    shape: tuple[int, ...]
    transposed: bool = False

    @staticmethod
    def whole(tensor: str, type: GGMLType, shape: tuple[int, ...]) -> Recipe:
        """The tensor as it is: shape [n], [rows, columns] or [experts, rows, columns]."""
        rows = shape[-2] if len(shape) > 1 else 1
        experts = (0, shape[0]) if len(shape) == 3 else None
        return Recipe((Cut(tensor, type, (0, rows), (0, shape[-1]), experts),), shape)

    @property
    def name(self) -> str:
        """The tensors it reads, with the cut where it is not whole."""
        return " + ".join(c.tensor for c in self.cuts)

    def rows(self, start: int, stop: int) -> Recipe:
        """Output rows start…stop; of a vector, its elements."""
        if self.transposed or len(self.shape) == 1:
            return self._columns(start, stop)
        self._check(start, stop, self.shape[-2], "rows")
        kept, at = [], 0
        for cut in self.cuts:
            n = cut.rows[1] - cut.rows[0]
            a, b = max(start - at, 0), min(stop - at, n)
            if a < b:
                kept.append(replace(cut, rows=(cut.rows[0] + a, cut.rows[0] + b)))
            at += n
        return Recipe(tuple(kept), (*self.shape[:-2], stop - start, self.shape[-1]))

    def cols(self, start: int, stop: int) -> Recipe:
        """Input columns start…stop; they must fall on whole quantisation blocks."""
        if self.transposed:
            raise ProgramError(f"{self.name}: cut before transposing")
        return self._columns(start, stop)

    @property
    def T(self) -> Recipe:
        """Rows and columns swapped."""
        if len(self.shape) != 2:
            raise ProgramError(f"{self.name}: only a matrix can be transposed, not {self.shape}")
        return Recipe(self.cuts, self.shape[::-1], not self.transposed)

    def _columns(self, start: int, stop: int) -> Recipe:
        self._check(start, stop, self.shape[-1] if not self.transposed else self.shape[-2], "columns")
        for cut in self.cuts:
            if (start + cut.cols[0]) % cut.type.block or (stop + cut.cols[0]) % cut.type.block:
                raise ProgramError(
                    f"{cut.tensor}: columns {start}…{stop} cut a {cut.type.name} block of {cut.type.block} elements"
                )
        cuts = tuple(replace(c, cols=(c.cols[0] + start, c.cols[0] + stop)) for c in self.cuts)
        shape = (*self.shape[:-1], stop - start) if not self.transposed else (stop - start, self.shape[-1])
        return Recipe(cuts, shape, self.transposed)

    def _check(self, start: int, stop: int, size: int, what: str) -> None:
        if not 0 <= start < stop <= size:
            raise ProgramError(f"{self.name}: {what} {start}…{stop} lie outside 0…{size}")
