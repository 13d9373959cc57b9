"""Finds the first value of a program that departs from a dump of somebody else's run.

Names differ between engines and so does what they fuse. So the counterpart of a value is the closest array of as many
numbers in the same block, if it is close enough; and a value has departed if neither it nor anything computed from it
has a counterpart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tensormill.errors import RequestError

if TYPE_CHECKING:
    from tensormill.program import Program, Value

Array = npt.NDArray[Any]
_BLOCK = re.compile(r"blk\.(\d+)\.")
_NODE = re.compile(r"[^|]*\|(?P<name>[^|]*)\|.*", re.DOTALL)
_NODE_BLOCK = re.compile(r".*?(?:-|_l)(\d+)(?: .*)?")


@dataclass(frozen=True)
class Node:
    """One array of a dump: its name and the block it belongs to (None: outside of all, or unknown)."""

    name: str
    block: int | None
    value: Array


@dataclass(frozen=True)
class Report:
    """The outcome: distances and names of the nearest arrays, and the first value that departed."""

    distances: dict[str, tuple[float, str]]
    departed: str | None
    tolerance: float

    def __str__(self) -> str:
        near = sum(distance <= self.tolerance for distance, _ in self.distances.values())
        counted = f"{near} of {len(self.distances)} values have a counterpart within {self.tolerance:g}"
        if self.departed is None:
            return f"no value departs; {counted}"
        distance, name = self.distances[self.departed]
        return f"the first value that departs is {self.departed!r}: the nearest is {name!r}, {distance:.3g} away; {counted}"


def read_dump(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file; RequestError if it is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        raise RequestError(f"cannot read {path} as an .npz dump: {error}") from None


def compare(program: Program, ours: Mapping[str, Array], theirs: Mapping[str, Array], tokens: int, tolerance: float) -> Report:
    """Compare the values of one step of so many tokens, in the order of the program.

    Raises RequestError if the dump has no array of any value's size: it is of other tokens or of another model.
    """
    nodes = [_node(name, value) for name, value in theirs.items()]
    by_size: dict[int, list[Node]] = {}
    for node in nodes:
        by_size.setdefault(node.value.size, []).append(node)
    values = [value for op in program.ops for value in op.outputs if value.dtype == "f32"]
    nearest = ((v.name, _nearest(v.name, ours[v.name], by_size, theirs, tokens)) for v in values)
    distances = {name: found for name, found in nearest if found is not None}
    if not distances:
        raise RequestError("the dump has no array of the size of any value: is it of these tokens and this model?")
    same = {name for name, (distance, _) in distances.items() if distance <= tolerance}
    departed = next((v.name for v in values if v.name in distances.keys() - same and not _reaches(program, v, same)), None)
    return Report(distances, departed, tolerance)


def _node(key: str, value: Array) -> Node:
    found = _NODE.fullmatch(key)
    if found is None:
        return Node(key, _block(_BLOCK, key), value)
    return Node(found["name"], _block(_NODE_BLOCK, found["name"]), value)


def _block(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.match(name)
    return int(found[1]) if found else None


def _nearest(
    name: str, value: Array, nodes: Mapping[int, list[Node]], named: Mapping[str, Array], tokens: int
) -> tuple[float, str] | None:
    """The smallest distance to an array of the dump, and its name; that of the same name if there is one."""
    if name in named:
        return _distance(value, named[name], tokens), name
    block = _block(_BLOCK, name)
    same_size = (n for n in nodes.get(value.size, []) if n.block in (block, None))
    return min(((_distance(value, n.value, tokens), n.name) for n in same_size), default=None)


def _distance(a: Array, b: Array, tokens: int) -> float:
    """The largest difference, relative to the largest number of the same token; infinite for NaN or another size."""
    if a.size != b.size:
        return float("inf")
    rows = tokens if a.size % tokens == 0 else 1
    a, b = a.reshape(rows, -1).astype(np.float64), b.reshape(rows, -1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        distance = float((np.abs(a - b).max(axis=1) / np.maximum(np.abs(b).max(axis=1), 1e-30)).max())
    return distance if np.isfinite(distance) else float("inf")


def _reaches(program: Program, start: Value, same: set[str]) -> bool:
    """Whether anything computed from `start`, in the same block or the next, has a counterpart."""
    seen, front = {start.name}, {start.name}
    for op in program.ops:
        if any(value.name in front for value in op.values):
            for out in op.outputs:
                if out.name in same:
                    return True
                front.add(out.name)
    return len(front) == len(seen)  # nothing is computed from it but what the dump does not show, like the last value
