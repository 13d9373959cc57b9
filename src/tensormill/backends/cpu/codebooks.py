"""Hands the codebooks of the IQ types to the native module: data of the `gguf` package, read when a model needs them."""

from __future__ import annotations

from functools import cache

import numpy as np

from tensormill.backends.cpu.native import native
from tensormill.gguf import GGMLType
from tensormill.quant.iq import codebook

CODEBOOK_TYPES = (
    GGMLType.IQ1_S,
    GGMLType.IQ1_M,
    GGMLType.IQ2_XXS,
    GGMLType.IQ2_XS,
    GGMLType.IQ2_S,
    GGMLType.IQ3_XXS,
    GGMLType.IQ3_S,
)


@cache
def give_codebook(kind: GGMLType) -> None:
    """Makes `kind` ready for the native kernels; nothing to do for types without a codebook."""
    if kind in CODEBOOK_TYPES:
        values = codebook(kind) * (8 if kind in (GGMLType.IQ1_S, GGMLType.IQ1_M) else 1)  # IQ1: in units of its delta
        native().set_codebook(kind, np.ascontiguousarray(values, np.int8))
