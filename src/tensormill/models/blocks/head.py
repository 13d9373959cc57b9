"""The end of a language model: the rows wanted, the last norm, the vocabulary."""

from __future__ import annotations

from tensormill.errors import ModelError
from tensormill.models.hyper import Hyper
from tensormill.program import Scope, Tracer, Value


def logits(g: Tracer, x: Value, w: Scope, c: Hyper, *, scale: float = 1.0, softcap: float = 0.0) -> dict[str, Value]:
    """`logits` [R, V] and `hidden` [R, D] (what the head reads) of x [T, D]; a missing head is the embedding's."""
    g.prefix = ""
    hidden = g.rms_norm(g.gather_rows(x, g.step.out_rows), w.output_norm, c.eps)
    raw = g.linear(hidden, w.output if "output" in w else w.token_embd)
    if raw.shape[-1] != w.token_embd.shape[0]:
        raise ModelError(f"{w.output} gives other tokens than {w.token_embd} knows")
    return {"logits": g.softcap(g.scale(raw, scale), softcap), "hidden": hidden}
