"""A read position in a mapped file: every step is checked against the end before it is made.

Nothing here allocates more than the file holds. What the bytes mean is in `header`.
"""

from __future__ import annotations

import struct
from mmap import mmap

import numpy as np
import numpy.typing as npt

from tensormill.errors import GGUFError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
FEW = 256  # strings that are as well stepped over one by one
WINDOW = 1 << 20  # bytes


class Cursor:
    """Reads little-endian numbers and strings one after the other; GGUFError where the file ends too early."""

    def __init__(self, data: mmap | bytes, path: str, at: int = 0) -> None:
        self.data = data
        self.path = path
        self.at = at
        self.end = len(data)

    def error(self, message: str, at: int | None = None) -> GGUFError:
        """An error that names this file and the place `at`, by default the current one."""
        return GGUFError(message, path=self.path, offset=self.at if at is None else at)

    def skip(self, size: int, what: str) -> int:
        """Steps over `size` bytes; returns where they begin."""
        start = self.at
        if size > self.end - start:
            raise self.error(f"{what} needs {size} bytes, but the file ends {self.end - start} bytes later (truncated?)")
        self.at = start + size
        return start

    def u32(self, what: str) -> int:
        """The next four bytes."""
        value: int = _U32.unpack_from(self.data, self.skip(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """The next eight bytes."""
        value: int = _U64.unpack_from(self.data, self.skip(8, what))[0]
        return value

    def name(self, what: str, limit: int) -> str:
        """A string that names something: valid UTF-8 of 1 to `limit` bytes."""
        at = self.at
        size = self.u64(f"length of a {what}")
        if not 0 < size <= limit:
            raise self.error(f"a {what} of {size} bytes; 1 to {limit} are allowed", at)
        start = self.skip(size, what)
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError as error:
            raise self.error(f"a {what} is not UTF-8 ({error.reason})", start) from None

    def skip_strings(self, count: int, what: str) -> None:
        """Steps over `count` strings. This walk is most of the time that opening a large vocabulary takes."""
        if count > (self.end - self.at) // 8:
            raise self.error(f"{what} claims {count} strings, more than the rest of the file could hold (truncated?)")
        done = self._skip_short_strings(count) if count >= FEW else 0
        at, end, data, unpack = self.at, self.end, self.data, _U64.unpack_from
        try:
            for _ in range(count - done):
                at += 8 + unpack(data, at)[0]
                if at > end:
                    break
        except struct.error:
            at = end + 1
        if at > end:
            raise self.error(f"{what} has a string that runs past the end of the file (truncated?)")
        self.at = at

    def _skip_short_strings(self, count: int) -> int:
        """Steps over up to `count` strings, window by window, and tells over how many; it stops where they are not as expected.

        Before a text of 1 to 255 bytes stands a byte that is not zero and seven that are, which no usual text holds: all such
        places are found at once, and each must lie where the one before it says.
        """
        done = 0
        while done < count:
            window = np.frombuffer(self.data[self.at : self.at + WINDOW], np.uint8)
            if len(window) < 16:
                break
            places = _places(window)
            follows = places[1:] == places[:-1] + 8 + window[places[:-1]]
            if not len(places) or places[0] != 0:
                break
            told = min(len(follows) if follows.all() else int(follows.argmin()), count - done)
            self.at += int(places[told])
            done += told
            if told < FEW:
                break
        return done


def _places(window: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """Where a byte that is not zero stands before seven that are."""
    found = np.zeros(len(window) - 7, np.bool_)
    for first in range(8):
        numbers = window[first : first + (len(window) - first) // 8 * 8].view("<u8")
        found[first::8] = numbers - 1 < 255  # unsigned: 0 is none
    return np.flatnonzero(found)


def read_strings(data: mmap | bytes, at: int, count: int) -> list[str]:
    """Decodes `count` strings that `skip_strings` has found whole; bytes that are not UTF-8 become `\\xNN`."""
    found: list[str] = []
    append, unpack = found.append, _U64.unpack_from
    for _ in range(count):
        start = at + 8
        at = start + unpack(data, at)[0]
        append(data[start:at].decode("utf-8", "backslashreplace"))
    return found
