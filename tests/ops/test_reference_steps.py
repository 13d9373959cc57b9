"""The same tokens give the same logits however they are fed: whole, in chunks, one by one, together, with drafts."""

from __future__ import annotations

import numpy as np

from ops import models
from ops.driver import Driver, Feed, whole


def test_llama_one_by_one() -> None:
    m = models.llama(window=10)
    tokens = np.random.default_rng(1).integers(0, m.vocabulary, 30).tolist()
    expected = whole(m, tokens)
    d = Driver(m)
    t = d.track()
    for token in tokens:
        d.feed(Feed(t, [token]))
    got = np.stack([t.logits[i] for i in range(30)])
    np.testing.assert_allclose(got, expected, atol=1e-5)
