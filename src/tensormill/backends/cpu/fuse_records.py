"""Fusions of neighbouring records: a norm takes in the sum before it, norms and gated activations quantise what they make.

They keep rows in cache instead of passing through memory; the arithmetic, hence every bit, stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensormill.backends.cpu.lower import Record
from tensormill.backends.cpu.view import Storage, View


def fuse_records(records: Sequence[Record], outputs: Sequence[View]) -> list[Record]:
    """The records with what can be fused fused; `outputs` are views that are read afterwards."""
    return _add_into_norm(_quantise_into_maker(records, outputs), outputs)


def _readers(records: Sequence[Record], outputs: Sequence[View]) -> dict[Storage, int]:
    """How often each storage is read."""
    counts: dict[Storage, int] = {}
    for view in (v for r in records for v in r.inputs if v is not None):
        counts[view.storage] = counts.get(view.storage, 0) + 1
    for view in outputs:
        counts[view.storage] = counts.get(view.storage, 0) + 1
    return counts


def _quantise_into_maker(records: Sequence[Record], outputs: Sequence[View]) -> list[Record]:
    readers = _readers(records, outputs)
    out: list[Record] = []
    maker: dict[Storage, int] = {}
    for record in records:
        (source, *_rest) = record.inputs or (None,)
        at = maker.get(source.storage, -1) if record.kernel == "quantise" and source is not None else -1
        fused = _with_codes(out[at], record, source, readers) if at >= 0 and source is not None else None
        if fused is not None:
            out[at] = fused
            continue
        for view in record.outputs:
            if view is not None and record.kernel in ("rms_norm", "glu"):
                maker[view.storage] = len(out)
        out.append(record)
    return out


def _with_codes(made: Record, quantise: Record, source: View, readers: dict[Storage, int]) -> Record | None:
    view = made.outputs[0]
    if view is None or made.outputs[1] is not None or not _same_rows(view, source):
        return None
    inputs = made.inputs
    if made.kernel == "glu":
        rows = [v.rows() if v is not None and v.dense and len(v.shape) == len(view.shape) else None for v in inputs]
        if any(r is None or (r.shape, r.times) != (source.shape, source.times) for r in rows):
            return None
        inputs, view = tuple(rows), source
    kept = view if readers[view.storage] > 1 else None
    return replace(made, inputs=inputs, outputs=(kept, *quantise.outputs, *made.outputs[4:]))


def _same_rows(view: View, rows: View) -> bool:
    flat = view.rows() if view.dense else None
    return flat is not None and (flat.offset, flat.shape, flat.strides, flat.times) == (
        rows.offset,
        rows.shape,
        rows.strides,
        rows.times,
    )


def _add_into_norm(records: Sequence[Record], outputs: Sequence[View]) -> list[Record]:
    readers = _readers(records, outputs)
    out: list[Record] = []
    for record in records:
        before = out[-1] if out else None
        if before is not None and before.kernel == "add" and record.kernel == "rms_norm" and _feeds(before, record):
            total = before.outputs[0]
            assert total is not None
            kept = total if readers[total.storage] > 1 else None
            inputs = (before.inputs[0], record.inputs[1], before.inputs[1])
            out[-1] = replace(record, inputs=inputs, outputs=(*record.outputs[:4], kept))
        else:
            out.append(record)
    return out


def _feeds(add: Record, norm: Record) -> bool:
    total, x = add.outputs[0], norm.inputs[0]
    if x is None or total != x or norm.inputs[2] is not None:
        return False
    return all(v is not None and v.shape == x.shape and v.times == x.times and v.dense for v in add.inputs)
