"""Tiny random models with a small real vocabulary, so that whole requests run through the crank in a fraction of a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, cycle, islice
from pathlib import Path

import numpy as np

import models.zoo  # noqa: F401  (fills VARIANTS)
from models import tiny
from models.quantised import quantisable, stored
from tensormill.config import EngineConfig, SamplingConfig
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Generate, Output
from tensormill.gguf import GGMLType, GGUFWriter

PIECES = ["<unk>", "<s>", "</s>", *(chr(33 + i) for i in range(tiny.VOCABULARY - 3))]


def write(variant: str, path: Path, seed: int = 0, noise: float = 0.0, kinds: Sequence[GGMLType] = (), **keys: object) -> Path:
    """A variant's file with a vocabulary; `noise` makes a model that only resembles it.

    With `kinds` it is wide enough for any of them, and its matrices have the types in turn. `keys` are added (`__`: a dot).
    """
    chosen = tiny.VARIANTS[variant]
    if kinds:
        chosen = replace(chosen, sizes=chosen.sizes | {"D": 256, "F": 256})
    made = chosen.made(variant)
    rng = np.random.Generator(np.random.PCG64(seed))
    kind = cycle(kinds)
    writer = GGUFWriter(path)
    writer.add("general.architecture", made.arch)
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.tokens", PIECES)
    writer.add("tokenizer.ggml.scores", np.zeros(len(PIECES), np.float32))
    writer.add("tokenizer.ggml.token_type", np.array([2, 3, 3, *[1] * (len(PIECES) - 3)], np.int32))
    for key, value in (made.keys | {k.replace("__", "."): v for k, v in keys.items()}).items():
        writer.add(key, value)
    for name, data in made.tensors.items():
        noisy = (data * (1 + noise * rng.standard_normal(data.shape)) if noise else data).astype(np.float32)
        of_name = next((k for k in islice(kind, len(kinds)) if quantisable(name, data, k)), None)
        writer.add_tensor(name, noisy if of_name is None else stored(of_name, noisy, rng), of_name)
    writer.write()
    return path


def load(path: Path, **config: object) -> Engine:
    """An engine on the reference backend."""
    settings = {"backend": "reference", "context": 256, "chunk": 48, "kv_type": "f32", "sequences": 4} | config
    return Engine.load(path, EngineConfig(**settings))


def ask(id: str, tokens: list[int], **sampling: object) -> Generate:
    """A request for 24 tokens, greedy unless told otherwise."""
    settings = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True} | sampling
    return Generate(id, tokens, SamplingConfig(**settings), logprobs=2)


def answers(crank: Crank, requests: list[Generate], late: int = 0) -> dict[str, list[Output]]:
    """Run requests together, the last `late` of them one turn after another; the outputs of each."""
    outputs: dict[str, list[Output]] = {r.id: [] for r in requests}
    now, later = requests[: len(requests) - late], requests[len(requests) - late :]
    for request in now:
        assert not crank.take(request)
    for turn in count():
        if not (crank.busy or later):
            break
        assert turn < 5000, "requests that never end"
        if later:
            assert not crank.take(later.pop(0))
        for reply in crank.turn():
            assert isinstance(reply, Output)
            outputs[reply.id].append(reply)
        crank.scheduler.check_integrity()
    return outputs


def told(outputs: list[Output]) -> tuple[list[int], list[tuple[int, float]], str]:
    """What a request was answered: tokens, log-probabilities, text."""
    tokens = [t for o in outputs for t in o.tokens]
    chances = [(c.token, c.logprob) for o in outputs for c in o.chances]
    return tokens, chances, "".join(o.text for o in outputs)
