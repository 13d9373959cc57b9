"""Reference: the function of each op kind. Ops whose spec reads the step take the frame first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensormill.backends.reference import arithmetic, attention, ending, products, recurrent, rotary, routing, rows

KINDS: dict[str, Callable[..., Any]] = {
    "embed": rows.embed,
    "gather_rows": rows.gather_rows,
    "put_rows": rows.put_rows,
    "reshape": rows.reshape,
    "slice": rows.cut,
    "concat": rows.concat,
    "linear": products.linear,
    "expert_linear": products.expert_linear,
    "hadamard": products.hadamard,
    "mix": products.mix,
    "rms_norm": arithmetic.rms_norm,
    "layer_norm": arithmetic.layer_norm,
    "softmax": arithmetic.softmax,
    "sum": arithmetic.total,
    "add": arithmetic.add,
    "mul": arithmetic.mul,
    "where": arithmetic.where,
    "unary": arithmetic.unary,
    "angles": rotary.angles,
    "rope": rotary.rope,
    "kv_write": attention.kv_write,
    "attention": attention.attention,
    "indexer": routing.indexer,
    "tail": recurrent.tail,
    "ssm_scan": recurrent.ssm_scan,
    "delta_rule": recurrent.delta_rule,
    "route": routing.route,
    "sinkhorn": routing.sinkhorn,
    "pool": ending.pool,
    "top_k": ending.top_k,
    "quantise": ending.quantise,
}
