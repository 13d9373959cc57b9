"""Weights as the kernels want them: packed matrices in one region of memory, small arrays as float32.

Packing keeps the file's bits per weight and goes tensor after tensor, giving the mapped pages of the file back as it goes, so
that loading needs little more memory than the file's size. Threads take pieces of tensors and need not end them together. What
a packed panel looks like is in `csrc/linear`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tensormill.backends.cpu.codebooks import give_codebook
from tensormill.backends.cpu.memory import region
from tensormill.backends.cpu.native import native
from tensormill.errors import BackendError
from tensormill.gguf.types import GGMLType
from tensormill.program.recipe import Recipe
from tensormill.program.weights import WeightSource

Bytes = npt.NDArray[np.uint8]
Reads = Literal["values", "codes", "words"]  # float32, int8 or int16 activations
ALIGN = 64
PANEL = 16  # rows
PIECE_BYTES = 4 << 20  # of the file that are packed by one call: few calls, but threads end together
RELEASE_BYTES = 32 << 20  # of a tensor that are read before its pages go back


@dataclass(eq=False, slots=True)
class Packed:
    """`count` matrices [rows, columns] of one type, `stride` bytes apart, at `offset` of the region."""

    type: GGMLType
    count: int
    rows: int
    columns: int
    stride: int
    offset: int = 0

    @property
    def reads(self) -> Reads:
        """What activations products with it want."""
        if native().takes_codes(int(self.type)):
            return "codes"
        return "words" if native().takes_words(int(self.type)) else "values"


@dataclass(frozen=True, eq=False, slots=True)
class Member:
    """Matrix `number` of a packed set, as a matrix of its own (a group of a block-diagonal product)."""

    whole: Packed
    number: int

    @property
    def reads(self) -> Reads:
        """As its set."""
        return self.whole.reads

    @property
    def rows(self) -> int:
        """Output rows."""
        return self.whole.rows

    @property
    def columns(self) -> int:
        """Inputs."""
        return self.whole.columns


class Weights:
    """Collects which weights a program needs while it is lowered, then packs them all."""

    def __init__(self, source: WeightSource) -> None:
        self.source = source
        self._region: Bytes | None = None
        self._parts: dict[tuple[Recipe, int], list[Packed]] = {}
        self._arrays: dict[Recipe, npt.NDArray[Any]] = {}
        self._address = 0

    def array(self, recipe: Recipe) -> npt.NDArray[Any]:
        """A small weight as float32, or an I32 table."""
        if recipe not in self._arrays:
            whole = all(c.type is GGMLType.I32 for c in recipe.cuts)
            made: npt.NDArray[Any] = self.source.int32(recipe) if whole else self.source.float32(recipe)
            self._arrays[recipe] = np.ascontiguousarray(made)
            self.source.release(recipe)
        return self._arrays[recipe]

    def matrices(self, recipe: Recipe, count: int = 1) -> list[Packed]:
        """The parts of a weight, one for each run of cuts of one type, each `count` matrices (experts, groups)."""
        key = (recipe, count)
        if key not in self._parts:
            self._parts[key] = [self._part(t, count, rows // count, recipe) for t, rows in self._runs(recipe)]
        return self._parts[key]

    def address(self, part: Packed | Member) -> int:
        """Where a packed part lies; known after `pack`."""
        if isinstance(part, Member):
            return self._address + part.whole.offset + part.number * part.whole.stride
        return self._address + part.offset

    def pack(self, progress: Callable[[int, int], None] | None, threads: int) -> None:
        """Pack everything that was asked for."""
        end = 0
        for parts in self._parts.values():
            for part in parts:
                part.offset = end
                end += -(-part.stride * part.count // ALIGN) * ALIGN
        self._region = target = region(end)
        self._address = target.ctypes.data
        done = taken = 0
        with ThreadPoolExecutor(threads) as pool:
            for piece in _in_order(pool, self._pieces(target), 2 * threads):
                done += piece.target.nbytes
                taken += piece.rows.nbytes
                if piece.last or taken > RELEASE_BYTES:
                    self.source.release(piece.recipe)
                    taken = 0
                if progress is not None:
                    progress(done, end)

    @property
    def bytes(self) -> int:
        """Size of the packed weights."""
        return sum(p.stride * p.count for parts in self._parts.values() for p in parts)

    def _part(self, type: GGMLType, count: int, rows: int, recipe: Recipe) -> Packed:
        columns = recipe.shape[-1]
        if not native().linear_supported(int(type)):
            raise BackendError(f"the CPU backend cannot multiply by {type.name} weights ({recipe.name})")
        give_codebook(type)
        try:
            stride = int(native().packed_bytes(int(type), rows, columns))
        except RuntimeError as why:  # it is too wide
            raise BackendError(f"the CPU backend cannot multiply by {recipe.name}: {why}") from why
        return Packed(type, count, rows, columns, stride)

    def _runs(self, recipe: Recipe) -> list[tuple[GGMLType, int]]:
        """(type, rows over all experts) of each run of neighbouring cuts of one type."""
        if recipe.transposed:
            return [(GGMLType.F32, recipe.shape[-2])]
        runs: list[tuple[GGMLType, int]] = []
        for cut in recipe.cuts:
            rows = (cut.rows[1] - cut.rows[0]) * (cut.experts[1] - cut.experts[0] if cut.experts else 1)
            if runs and runs[-1][0] is cut.type and cut.experts is None:
                runs[-1] = (cut.type, runs[-1][1] + rows)
            else:
                runs.append((cut.type, rows))
        return runs

    def _rows(self, recipe: Recipe) -> Iterator[Bytes]:
        """Bytes of each run of cuts, as rows."""
        if recipe.transposed:
            yield self.source.float32(recipe).view(np.uint8)
            return
        pending: list[Bytes] = []
        before: GGMLType | None = None
        for cut, (type, rows) in zip(recipe.cuts, self.source.pieces(recipe), strict=True):
            if pending and (type is not before or cut.experts is not None):
                yield np.concatenate(pending) if len(pending) > 1 else pending[0]
                pending = []
            pending.append(rows)
            before = type
        yield np.concatenate(pending) if len(pending) > 1 else pending[0]

    def _pieces(self, target: Bytes) -> Iterator[Piece]:
        """All that is to be packed, in the order of the region."""
        size = native().packed_bytes
        for (recipe, _count), parts in self._parts.items():
            for part, source in zip(parts, self._rows(recipe), strict=True):
                step = max(PIECE_BYTES // source.shape[1] // PANEL, 1) * PANEL
                for m in range(part.count):
                    for first in range(0, part.rows, step):
                        end = min(first + step, part.rows)
                        at = part.offset + m * part.stride + size(int(part.type), first, part.columns)
                        to = at + size(int(part.type), end - first, part.columns)
                        rows = source[m * part.rows + first : m * part.rows + end]
                        last = part is parts[-1] and m == part.count - 1 and end == part.rows
                        yield Piece(part, rows, target[at:to], recipe, last)


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """Rows of the file and the place where their panels go."""

    part: Packed
    rows: Bytes
    target: Bytes
    recipe: Recipe
    last: bool  # of its recipe


def _in_order(pool: ThreadPoolExecutor, pieces: Iterator[Piece], most: int) -> Iterator[Piece]:
    """Packs pieces, at most so many at a time, and yields them once they are done."""
    waiting = deque[tuple[Piece, Future[None]]]()
    for piece in pieces:
        waiting.append((piece, pool.submit(_pack, piece)))
        if len(waiting) > most:
            yield _done(*waiting.popleft())
    yield from (_done(*each) for each in waiting)


def _done(piece: Piece, job: Future[None]) -> Piece:
    job.result()
    return piece


def _pack(piece: Piece) -> None:
    native().pack(int(piece.part.type), np.ascontiguousarray(piece.rows), piece.part.columns, piece.target)
