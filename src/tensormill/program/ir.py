"""The intermediate form: a Program is a flat list of Ops over Values and Caches.

Shapes are numbers but for their first axis, which may be a symbol whose size the host knows before the step: T tokens,
S sequences, R rows whose logits are wanted, M media rows, C<r> entries of compression ratio r. No shape depends on data.
What each kind means is in `specs.py`; how a model file writes one, in `tracer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tensormill.program.recipe import Recipe

if TYPE_CHECKING:
    from tensormill.program.tracer import Tracer

Dim = int | str
Shape = tuple[Dim, ...]
DType = Literal["f32", "i32", "q8"]  # q8: int8 codes with a scale a block, from the quantise pass
Role = Literal["input", "weight", "const", "temp"]


@dataclass(eq=False, slots=True)
class Value:
    """One array of a program; named after the weight that makes it."""

    name: str
    shape: Shape
    dtype: DType = "f32"
    role: Role = "temp"
    recipe: Recipe | None = None
    data: npt.NDArray[Any] | None = None
    tracer: Tracer | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"%{self.name}{list(self.shape)}".replace("'", "")

    # Sugar of model files; each line is one op of OPS.md.
    def __add__(self, other: Value) -> Value:
        return self._g.add(self, other)

    def __mul__(self, other: Value | float) -> Value:
        return self._g.mul(self, other) if isinstance(other, Value) else self._g.scale(self, other)

    def __rmul__(self, other: float) -> Value:
        return self._g.scale(self, other)

    def __sub__(self, other: Value) -> Value:
        return self._g.add(self, self._g.scale(other, -1.0))

    def __getitem__(self, key: object) -> Value:
        return self._g.index(self, key)

    def rows(self, start: int, stop: int) -> Value:
        """Rows start…stop of a weight, as a weight."""
        return self._g.weight(self._recipe.rows(start, stop))

    def cols(self, start: int, stop: int) -> Value:
        """Columns start…stop of a weight, as a weight."""
        return self._g.weight(self._recipe.cols(start, stop))

    @property
    def T(self) -> Value:
        """The transposed weight."""
        return self._g.weight(self._recipe.T)

    @property
    def _g(self) -> Tracer:
        assert self.tracer is not None, "values take part in arithmetic only while a model file is traced"
        return self.tracer

    @property
    def _recipe(self) -> Recipe:
        assert self.recipe is not None, f"{self.name} is not a weight"
        return self.recipe


@dataclass(frozen=True, eq=False, slots=True)
class Cache:
    """What a sequence leaves behind between steps (OPS §2).

    paged: rows in pages, `k` [G, K] and perhaps `v` [G, Kv] a row, a row every `ratio` tokens, kept for
    `window` tokens (0 = all).
    ring:  the last `back` rows of `width` numbers, in a slot.  state: a float32 array of `shape` a slot, lagging at `base`.
    """

    name: str
    kind: Literal["paged", "ring", "state"]
    k: tuple[int, int] = (0, 0)
    v: tuple[int, int] | None = None
    window: int = 0
    style: Literal["slide", "chunk", "centred"] = "slide"
    ratio: int = 1
    width: int = 0
    back: int = 0
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        what = {"paged": f"k{list(self.k)} v{list(self.v or ())}", "ring": f"{self.width}·{self.back}"}.get(self.kind)
        return f"@{self.name}:{self.kind} {what or list(self.shape)}" + (f" window={self.window}" if self.window else "")


@dataclass(frozen=True, slots=True)
class Source:
    """One set of rows that an attention op reads: a paged cache or this step's own keys and values, perhaps selected."""

    cache: bool
    select: bool = False
    span: int = 1


Operand = Value | Cache | None


@dataclass(frozen=True, eq=False, slots=True)
class Op:
    """One operation; a fused op keeps the ops it replaces in `body`, so that it can be compared with them."""

    kind: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    body: tuple[Op, ...] = ()

    @property
    def values(self) -> Iterator[Value]:
        """The inputs that are values."""
        return (v for v in self.inputs if isinstance(v, Value))

    @property
    def caches(self) -> Iterator[Cache]:
        """The inputs that are caches."""
        return (c for c in self.inputs if isinstance(c, Cache))

    def __str__(self) -> str:
        attrs = "".join(f" {k}={short(v)}" for k, v in self.attrs.items() if v is not None)
        inputs = ", ".join("–" if i is None else f"@{i.name}" if isinstance(i, Cache) else str(i) for i in self.inputs)
        return f"{', '.join(map(str, self.outputs)) or '·'} = {self.kind}({inputs}){attrs}"


def short(value: object) -> str:
    """An attribute's value in a few characters."""
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(eq=False, slots=True)
class Program:
    """Ops in an order in which they can run; `outputs` by the name under which the engine asks for them."""

    name: str
    ops: tuple[Op, ...]
    outputs: dict[str, Value]

    @property
    def caches(self) -> tuple[Cache, ...]:
        """Every cache once, in the order of first use."""
        return tuple(dict.fromkeys(c for op in self.ops for c in op.caches))

    @property
    def weights(self) -> tuple[Value, ...]:
        """Every weight once, in the order of first use."""
        return tuple(dict.fromkeys(v for op in self.ops for v in op.values if v.role == "weight"))

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The step inputs that ops name; some ops also read the step itself (`OpSpec.step`)."""
        return tuple(dict.fromkeys(v for op in self.ops for v in op.values if v.role == "input"))

    def consumers(self) -> dict[Value, list[Op]]:
        """Who reads each value."""
        readers: dict[Value, list[Op]] = {}
        for op in self.ops:
            for value in dict.fromkeys(op.values):
                readers.setdefault(value, []).append(op)
        return readers

    def producers(self) -> dict[Value, Op]:
        """Which op makes each value."""
        return {out: op for op in self.ops for out in op.outputs}

    def __str__(self) -> str:
        from tensormill.program.show import show

        return show(self)
