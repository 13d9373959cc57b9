"""`build_step`: its short way for decode steps makes the same arrays as the general way."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from tensormill.program import Run, build_step


@pytest.mark.parametrize("want", [None, [0], range(1)])
def test_a_decode_step_is_built_as_any_other(want: list[int] | None) -> None:
    runs = [Run([5 + i], past=9 + i, sure=i % 2, pages={0: [1, 2, 3] * (i + 1), 64: [i]}, slot=i, want=want) for i in range(5)]
    runs[3] = replace(runs[3], base=2)
    short = build_step(runs, components=3, ratios=[2, 4])
    general = build_step([replace(r, until=[r.past]) for r in runs], components=3, ratios=[2, 4])
    for field in fields(short):
        a, b = getattr(short, field.name), getattr(general, field.name)
        for x, y in [(a[k], b[k]) for k in b] if isinstance(b, dict) else [(a, b)]:
            assert x.dtype == y.dtype and x.shape == y.shape and x.flags.c_contiguous, field.name
            np.testing.assert_array_equal(x, y, err_msg=field.name)
        assert not isinstance(b, dict) or list(a) == list(b)
