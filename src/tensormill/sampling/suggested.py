"""Sampling values that a model file suggests (`general.sampling.*`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from tensormill.config import SamplingConfig
from tensormill.errors import RequestError

_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "penalty_window",
}


def suggested(metadata: Mapping[str, object], config: SamplingConfig | None = None) -> SamplingConfig:
    """`config` with the file's suggestions; those that are no numbers or out of range are passed over."""
    config = config or SamplingConfig()
    for key, field in _KEYS.items():
        value = metadata.get(f"general.sampling.{key}")
        if isinstance(value, (int, float)) and math.isfinite(value):
            kind = type(getattr(config, field))
            try:
                config = dataclasses.replace(config, **{field: kind(value)})
            except RequestError:
                continue
    return config
