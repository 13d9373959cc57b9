"""Typed, lazy access to the metadata of a GGUF file.

`header` has found where each value lies and that it lies within the file; here values are decoded when asked for.
A missing key or one of another type is a GGUFError that names the key, so model code needs no checks of its own.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np

from tensormill.errors import GGUFError
from tensormill.gguf.cursor import read_strings
from tensormill.gguf.values import DTYPES, SCALARS, ValueType

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Field:
    """Where a value lies: its type (of the items, in an array), their count, and the offset of the first."""

    type: ValueType
    count: int | None  # None: not an array
    offset: int

    def __str__(self) -> str:
        return self.type.name.lower() + ("" if self.count is None else f"[{self.count}]")


class _Required(Generic[T]):
    """Stands for "no default"."""


_REQUIRED: _Required[Any] = _Required()


class Metadata(Mapping[str, object]):
    """Keys in file order → int, float, bool, str, NumPy array (numbers, bools) or list[str].

    Strings that are not UTF-8 keep their odd bytes as `\\xNN`. Values are decoded once and kept; do not change them.
    """

    def __init__(self, data: bytes, fields: dict[builtins.str, Field], path: builtins.str) -> None:
        self._data = data
        self._fields = fields
        self._path = path
        self._values: dict[builtins.str, object] = {}

    def __getitem__(self, key: builtins.str) -> object:
        if key not in self._values:
            self._values[key] = self._decode(self._fields[key])
        return self._values[key]

    def __iter__(self) -> Iterator[builtins.str]:
        return iter(self._fields)

    def __len__(self) -> builtins.int:
        return len(self._fields)

    def __contains__(self, key: object) -> builtins.bool:
        return key in self._fields

    def field(self, key: builtins.str) -> Field:
        """Type, count and place of a value without decoding it. KeyError if there is none."""
        return self._fields[key]

    def _decode(self, field: Field) -> object:
        if field.type is ValueType.STRING:
            found = read_strings(self._data, field.offset, 1 if field.count is None else field.count)
            return found[0] if field.count is None else found
        if field.count is None:
            return SCALARS[field.type].unpack_from(self._data, field.offset)[0]
        # A copy: aligned.
        array = np.frombuffer(self._data, "u1", field.count * DTYPES[field.type].itemsize, field.offset).copy()
        if field.type is ValueType.BOOL:
            return array != 0
        found_array = array.view(DTYPES[field.type])
        found_array.flags.writeable = False
        return found_array

    @overload
    def int(self, key: builtins.str) -> builtins.int: ...
    @overload
    def int(self, key: builtins.str, default: T) -> builtins.int | T: ...
    def int(self, key: builtins.str, default: object = _REQUIRED) -> object:
        """A whole number. GGUFError if the key is missing (and no default is given) or of another type."""
        return self._typed(key, "an integer", builtins.int, default)

    @overload
    def float(self, key: builtins.str) -> builtins.float: ...
    @overload
    def float(self, key: builtins.str, default: T) -> builtins.float | T: ...
    def float(self, key: builtins.str, default: object = _REQUIRED) -> object:
        """A number; integers are taken too, since some converters write them. Errors as `int`."""
        value = self._typed(key, "a number", (builtins.float, builtins.int), default)
        return builtins.float(value) if key in self._fields else value  # type: ignore[arg-type]

    @overload
    def bool(self, key: builtins.str) -> builtins.bool: ...
    @overload
    def bool(self, key: builtins.str, default: T) -> builtins.bool | T: ...
    def bool(self, key: builtins.str, default: object = _REQUIRED) -> object:
        """A flag. Errors as `int`."""
        return self._typed(key, "a bool", builtins.bool, default)

    @overload
    def str(self, key: builtins.str) -> builtins.str: ...
    @overload
    def str(self, key: builtins.str, default: T) -> builtins.str | T: ...
    def str(self, key: builtins.str, default: object = _REQUIRED) -> object:
        """A string. Errors as `int`."""
        return self._typed(key, "a string", builtins.str, default)

    @overload
    def strings(self, key: builtins.str) -> list[builtins.str]: ...
    @overload
    def strings(self, key: builtins.str, default: T) -> list[builtins.str] | T: ...
    def strings(self, key: builtins.str, default: object = _REQUIRED) -> object:
        """An array of strings. Errors as `int`."""
        return self._typed(key, "an array of strings", list, default)

    @overload
    def array(self, key: builtins.str) -> Array: ...
    @overload
    def array(self, key: builtins.str, default: T) -> Array | T: ...
    def array(self, key: builtins.str, default: object = _REQUIRED) -> object:
        """An array of numbers or bools, [count], in the file's dtype. Errors as `int`."""
        return self._typed(key, "an array of numbers", np.ndarray, default)

    def _typed(self, key: builtins.str, wanted: builtins.str, kinds: Any, default: object) -> object:
        if key not in self._fields:
            if default is _REQUIRED:
                raise GGUFError(f"the key {key!r} is missing; expected {wanted}", path=self._path)
            return default
        value = self[key]
        if not isinstance(value, kinds) or (isinstance(value, builtins.bool) and kinds is not builtins.bool):
            field = self._fields[key]
            raise GGUFError(f"{key!r} is {field}; expected {wanted}", path=self._path, offset=field.offset)
        return value
