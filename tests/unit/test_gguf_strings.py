"""Stepping over many strings at once ends where stepping over them one by one does, whatever the strings are."""

from __future__ import annotations

from random import Random

import pytest

from tensormill.errors import GGUFError
from tensormill.gguf.cursor import FEW, WINDOW, Cursor

ODD = {
    "usual": b"",
    "empty": b"",
    "long": b"x" * 300,
    "zeros": bytes(20),
    "length within": b"ab\5\0\0\0\0\0\0\0hello",
    "ff": b"\xff" * 9,
}


def strings(odd: str, count: int) -> list[bytes]:
    random = Random(count)
    made = [random.randbytes(random.randrange(1, 256)).replace(b"\0", b"\1") for _ in range(count)]
    for at in () if odd == "usual" else (count // 3, count // 2, count - 1):
        made[at] = ODD[odd]
    return made


def joined(texts: list[bytes]) -> bytes:
    return b"".join(len(text).to_bytes(8, "little") + text for text in texts)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("count", [1, FEW - 1, FEW, 3 * FEW + 1, 3 * WINDOW // 128])
@pytest.mark.parametrize("after", [b"", b"\7\0\0\0\0\0\0\0general", bytes(100)])
def test_many_strings_are_stepped_over_as_one_by_one(odd: str, count: int, after: bytes) -> None:
    data = b"head" + joined(texts := strings(odd, count))
    cursor = Cursor(data + after, "file", 4)
    cursor.skip_strings(count, "texts")
    assert cursor.at == len(data)
    cursor = Cursor(data + after, "file", 4)
    cursor.skip_strings(count // 2, "texts")
    assert cursor.at == 4 + len(joined(texts[: count // 2]))


@pytest.mark.parametrize("missing", [1, 7, 100])
def test_a_string_that_runs_past_the_end_is_refused(missing: int) -> None:
    data = joined(strings("usual", 3 * FEW))
    with pytest.raises(GGUFError, match="runs past the end"):
        Cursor(data[:-missing], "file").skip_strings(3 * FEW, "texts")
