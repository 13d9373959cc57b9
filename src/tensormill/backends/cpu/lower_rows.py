"""How views, row-wise arithmetic and reductions become records."""

from __future__ import annotations

from tensormill.backends.cpu.lower import Lowering, rule
from tensormill.backends.cpu.view import View
from tensormill.errors import BackendError
from tensormill.gguf.types import GGMLType
from tensormill.program.ir import Op, Operand, Value
from tensormill.program.unary import KINDS

MOST_PAIRS = 512  # of a rotation (csrc/ops/rope.cpp)
MOST_EXPERTS = 2048  # csrc/ops/moe.cpp


def value_of(operand: Operand) -> Value:
    """The operand as a value."""
    assert isinstance(operand, Value)
    return operand


@rule("embed")
def _embed(g: Lowering, op: Op) -> None:
    ids, table = g.view(op.inputs[0]), value_of(op.inputs[1])
    ids = View(ids.storage, (ids.shape[0],), (1,), ids.offset, _count(ids))
    rows = _rows_of(g.make(op.outputs[0]))
    assert table.recipe is not None
    if all(c.type is GGMLType.I32 for c in table.recipe.cuts):
        return g.emit("embed_table", (ids, g.view(table)), (rows,), ints=(1,))
    parts = g.weights.matrices(table.recipe)
    if len(parts) == 1:
        return g.emit("embed", (ids,), (rows,), parts)
    return g.emit("embed_table", (ids, g.view(table)), (rows,), ints=(0,))


def _count(view: View) -> int:
    n = 1
    for d in view.shape[1:]:
        n *= int(d)
    return n


def _rows_of(view: View) -> View:
    flat = view.rows()
    assert flat is not None
    return flat


@rule("gather_rows")
def _gather(g: Lowering, op: Op) -> None:
    x, rows = g.wide(op.inputs[0]), g.view(op.inputs[1])
    out = g.make(op.outputs[0]).wide()
    assert out is not None
    g.emit("gather_rows", (x, rows), (out,))


@rule("put_rows")
def _put(g: Lowering, op: Op) -> None:
    x, rows, y = g.wide(op.inputs[0]), g.view(op.inputs[1]), g.wide(op.inputs[2])
    out = g.make(op.outputs[0]).wide()
    assert out is not None
    g.emit("put_rows", (x, rows, y), (out,), ints=(int(op.attrs["add"]),))


@rule("reshape")
def _reshape(g: Lowering, op: Op) -> None:
    view = g.view(op.inputs[0])
    reshaped = view.reshape(op.attrs["shape"]) or g.copy(view).reshape(op.attrs["shape"])
    assert reshaped is not None
    g.views[op.outputs[0]] = reshaped


@rule("slice")
def _slice(g: Lowering, op: Op) -> None:
    g.views[op.outputs[0]] = g.view(op.inputs[0]).slice(op.attrs["axis"], op.attrs["start"], op.attrs["stop"])


@rule("concat")
def _concat(g: Lowering, op: Op) -> None:
    out, axis, at = g.make(op.outputs[0]), op.attrs["axis"], 0
    places = []
    for x in op.values:
        places.append(out.slice(axis, at, at := at + int(x.shape[axis])))
    g.emit("concat", [g.view(x) for x in op.values], places)


@rule("add", "mul", "where")
def _elementwise(g: Lowering, op: Op) -> None:
    g.emit(op.kind, [g.view(x) for x in op.values], (g.make(op.outputs[0]),))


@rule("unary")
def _unary(g: Lowering, op: Op) -> None:
    x, out = value_of(op.inputs[0]), g.make(op.outputs[0])
    source = g.view(x)
    if x.dtype == "i32":
        if op.attrs["kind"] == "mod":
            return g.emit("convert", (source,), (out,), ints=(int(op.attrs["a"]),))
        source = g.temp(x.shape, "floats")
        g.emit("convert", (g.view(x),), (source,), ints=(0,))
    return g.emit("unary", (source,), (out,), ints=(KINDS.index(op.attrs["kind"]),), floats=(op.attrs["a"], op.attrs["b"]))


@rule("unary+mul")
def _glu(g: Lowering, op: Op) -> None:
    act = op.body[0]
    if len(op.outputs) > 1 or value_of(act.inputs[0]).dtype != "f32":
        for part in op.body:
            g.op(part)
        return
    x, y = g.view(op.inputs[0]), g.view(op.inputs[1])
    out = g.make(op.outputs[0])
    if len(x.shape) != len(out.shape):  # reshapes inside the chain
        x = x.reshape(out.shape) or g.copy(x)
    kind, a, b = (act.attrs[n] for n in ("kind", "a", "b"))
    g.emit("glu", (x, y), (out, None, None, None), ints=(KINDS.index(kind),), floats=(a, b))


@rule("rms_norm")
def _rms_norm(g: Lowering, op: Op) -> None:
    x, w = g.dense(op.inputs[0]), g.maybe(op.inputs[1])
    outputs = (g.make(op.outputs[0]), None, None, None, None)
    g.emit("rms_norm", (x, w, None), outputs, ints=(int(op.attrs["over"] == "sum"),), floats=(op.attrs["eps"],))
    g.scratch = max(g.scratch, 4 * int(x.shape[-1]) + 64)


@rule("layer_norm")
def _layer_norm(g: Lowering, op: Op) -> None:
    x, w, b = g.dense(op.inputs[0]), g.maybe(op.inputs[1]), g.maybe(op.inputs[2])
    g.emit("layer_norm", (x, w, b), (g.make(op.outputs[0]),), floats=(op.attrs["eps"],))


@rule("softmax", "sum")
def _along(g: Lowering, op: Op) -> None:
    x, axis = g.dense(op.inputs[0]), op.attrs["axis"]
    if axis == 0:
        raise BackendError(f"the CPU backend reduces no symbolic axis: {op}")
    out = g.make(op.outputs[0])
    out = out.insert(axis) if op.kind == "sum" else out
    g.emit(op.kind, (x,), (out,), ints=(axis + 4 - len(x.shape),))


@rule("hadamard")
def _hadamard(g: Lowering, op: Op) -> None:
    g.emit("hadamard", (g.dense(op.inputs[0]),), (g.make(op.outputs[0]),), ints=(op.attrs["n"],))


@rule("sinkhorn")
def _sinkhorn(g: Lowering, op: Op) -> None:
    x = g.dense(op.inputs[0])
    g.emit("sinkhorn", (x,), (g.make(op.outputs[0]),), ints=(op.attrs["iters"],), floats=(op.attrs["eps"],))


@rule("angles")
def _angles(g: Lowering, op: Op) -> None:
    if len(op.attrs["freq"]) > MOST_PAIRS:
        raise BackendError(f"the CPU backend rotates at most {MOST_PAIRS} pairs of a head: {op}")
    freq, comp = g.constant(op.attrs["freq"]), g.constant(op.attrs["comp"])
    symbol, out = op.attrs["rows"], g.make(op.outputs[0])
    rows = g.step_input(f"done{symbol[1:]}", (symbol,)) if symbol != "T" else None
    ratio = int(symbol[1:]) if symbol != "T" else 1
    g.emit("angles", (g.view(op.inputs[0]), freq, comp, rows), (out,), ints=(ratio,), floats=(op.attrs["mag"],))


@rule("rope")
def _rope(g: Lowering, op: Op) -> None:
    x, cs = g.dense(op.inputs[0]), g.view(op.inputs[1])
    flags = (op.attrs["pair"] == "halves", op.attrs["at"] == "end", op.attrs["inverse"])
    g.emit("rope", (x, cs), (g.make(op.outputs[0]),), ints=[int(f) for f in flags])


@rule("route")
def _route(g: Lowering, op: Op) -> None:
    score = g.rows(op.inputs[0])
    if int(score.shape[-1]) > MOST_EXPERTS:
        raise BackendError(f"the CPU backend routes among at most {MOST_EXPERTS} experts: {op}")
    given = g.rows(op.inputs[2]) if op.inputs[2] is not None else None
    a = op.attrs
    ints = (a["groups"], a["keep"], ("none", "sum", "softmax").index(a["norm"] or "none"))
    out = (g.make(op.outputs[0]), g.make(op.outputs[1]))
    g.emit("route", (score, g.maybe(op.inputs[1]), given), out, ints=ints, floats=(a["eps"], a["scale"]))


@rule("mix")
def _mix(g: Lowering, op: Op) -> None:
    w, x, out = g.view(op.inputs[0]), g.dense(op.inputs[1]), g.make(op.outputs[0])
    if len(w.shape) == 2:
        w, out = w.insert(2), out.insert(1)
    g.emit("mix", (w, x), (out,))


@rule("pool")
def _pool(g: Lowering, op: Op) -> None:
    kind = ("mean", "cls", "last").index(op.attrs["kind"])
    g.emit("pool_rows", (g.rows(op.inputs[0]),), (_rows_of(g.make(op.outputs[0])),), ints=(kind,))


@rule("top_k")
def _top_k(g: Lowering, op: Op) -> None:
    g.emit("top_k", (g.rows(op.inputs[0]),), [g.make(v) for v in op.outputs])
