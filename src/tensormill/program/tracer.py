"""The tracer `g`: what a model file calls. Each method appends one op to the program and returns its value.

A model file sees symbolic values only, never a device, a batch, a rank, a page or a thread. Methods have the names, operands
and attributes of OPS.md; shapes are checked as they are traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tensormill.errors import ProgramError
from tensormill.program.ir import Cache, DType, Op, Operand, Program, Shape, Source, Value
from tensormill.program.recipe import Recipe
from tensormill.program.specs import infer
from tensormill.program.unary import Unary
from tensormill.program.weights import Tensor, WeightSource, sidecar, stem

MOST_NUMBERS = 1 << 20  # of a table that is read while tracing


@dataclass(frozen=True, slots=True)
class Selected:
    """A cache of which attention reads only chosen rows: `ids` [T, k], each standing for `span` rows; −1 is none."""

    cache: Cache
    ids: Value
    span: int = 1


class StepInputs:
    """The step inputs by name, as values: `g.step.tokens`, `g.step.out_rows`, …"""

    SHAPES: ClassVar[dict[str, Shape]] = {
        "tokens": ("T",), "kind": ("T",), "index": ("T",), "until": ("T",), "adapter": ("T",),
        "out_rows": ("R",), "media_rows": ("M",),
    }  # fmt: skip

    def __init__(self, g: Tracer) -> None:
        self._g = g
        self._made: dict[str, Value] = {}

    def __getattr__(self, name: str) -> Value:
        if name not in self.SHAPES:
            raise AttributeError(f"a step has no input {name!r}; it has {', '.join(self.SHAPES)}")
        return self.make(name, self.SHAPES[name], "i32")

    def make(self, name: str, shape: Shape, dtype: DType) -> Value:
        """The input of that name, made at its first use."""
        if name not in self._made:
            self._made[name] = Value(name, shape, dtype, "input", tracer=self._g)
        return self._made[name]


class Tracer(Unary):
    """Builds one Program; `tensors` are those of the file, `components` the numbers a RoPE position has.

    `source` reads what tracing itself must know (RoPE factors); without it only programs that need no such table are traced.
    """

    def __init__(
        self, name: str, tensors: Mapping[str, Tensor], *, components: int = 1, source: WeightSource | None = None
    ) -> None:
        self.name = name
        self.tensors = tensors
        self._source = source
        self.prefix = ""  # of the block being traced: names values and caches
        self.step = StepInputs(self)
        self.used: set[str] = set()  # tensors that some recipe reads
        self.ops: list[Op] = []
        self._components = components
        self._weights: dict[Recipe, Value] = {}
        self._caches: dict[str, Cache] = {}
        self._angles: dict[tuple[bytes, bytes, float, str], Value] = {}
        self._names: dict[str, int] = {}

    # ---- weights and caches ----

    def weight(self, recipe: Recipe) -> Value:
        """The value of a recipe; one value for equal recipes."""
        if recipe not in self._weights:
            self.used.update(c.tensor for c in recipe.cuts)
            self._weights[recipe] = Value(recipe.name, recipe.shape, "f32", "weight", recipe, tracer=self)
        return self._weights[recipe]

    def numbers(self, w: Value) -> npt.NDArray[np.float32]:
        """The elements of a small weight, read now, while tracing: constants of the program such as RoPE factors."""
        recipe = w._recipe
        if self._source is None:
            raise ProgramError(f"{recipe.name} must be read while tracing, but the tracer has no file")
        if prod(recipe.shape) > MOST_NUMBERS:
            raise ProgramError(
                f"{recipe.name} is {recipe.shape}; a table read while tracing has at most {MOST_NUMBERS} numbers"
            )
        return self._source.float32(recipe)

    def paged(
        self,
        name: str,
        k: Sequence[int],
        v: Sequence[int] | None = None,
        *,
        window: int = 0,
        style: Any = "slide",
        ratio: int = 1,
    ) -> Cache:
        """Rows of keys [G, K] and values [G, Kv] in pages; a name met again is the same cache."""
        return self._cache(Cache(self.prefix + name, "paged", (k[0], k[1]), (v[0], v[1]) if v else None, window, style, ratio))

    def ring(self, name: str, width: int, back: int) -> Cache:
        """The last `back` rows of `width` numbers."""
        return self._cache(Cache(self.prefix + name, "ring", width=width, back=back))

    def state(self, name: str, shape: Sequence[int]) -> Cache:
        """A recurrent state of that shape for each sequence."""
        return self._cache(Cache(self.prefix + name, "state", shape=tuple(shape)))

    def _cache(self, cache: Cache) -> Cache:
        return self._caches.setdefault(cache.name, cache)

    def cache(self, name: str) -> Cache:
        """A cache that another block declared, by its whole name (layers that share keys and values)."""
        return self._caches[name]

    # ---- rows and views ----

    def embed(self, ids: Value, w: Value) -> Value:
        return self._one("embed", (ids, w), name=stem(w.name))

    def gather_rows(self, x: Value, rows: Value) -> Value:
        return self._one("gather_rows", (x, rows))

    def put_rows(self, x: Value, rows: Value, y: Value, *, add: bool = False) -> Value:
        return self._one("put_rows", (x, rows, y), add=add)

    def reshape(self, x: Value, *shape: int) -> Value:
        return x if x.shape[1:] == shape else self._one("reshape", (x,), shape=(x.shape[0], *shape))

    def heads(self, x: Value, n: int) -> Value:
        """[T, n·K], or any axes of that product, → [T, n, K]."""
        return self.reshape(x, n, int(np.prod([_int(d) for d in x.shape[1:]])) // n)

    def flat(self, x: Value) -> Value:
        """[T, …] → [T, product]."""
        return self.reshape(x, int(np.prod([_int(d) for d in x.shape[1:]])))

    def slice(self, x: Value, axis: int, start: int, stop: int) -> Value:
        whole = (start, stop) == (0, x.shape[axis])
        return x if whole else self._one("slice", (x,), axis=axis, start=start, stop=stop)

    def concat(self, *xs: Value, axis: int = -1) -> Value:
        return self._one("concat", xs, axis=axis % len(xs[0].shape))

    def index(self, x: Value, key: object) -> Value:
        """`x[:, a:b, None]`: slices of axes after the first, and new axes of size 1; of a weight vector, its elements."""
        keys = key if isinstance(key, tuple) else (key,)
        if x.role == "weight":
            (one,) = keys
            return self.weight(x._recipe.rows(*_bounds(one, _int(x.shape[0]))))
        shape: list[int] = []
        axis = 0
        for part in keys:
            if part is None:
                shape.append(1)
                continue
            if axis:
                x = self.slice(x, axis, *_bounds(part, _int(x.shape[axis])))
                shape.append(_int(x.shape[axis]))
            axis += 1
        return self.reshape(x, *shape, *(_int(d) for d in x.shape[axis:]))

    # ---- products ----

    def linear(self, x: Value, w: Value, b: Value | None = None, scale: Value | None = None, *, groups: int = 1) -> Value:
        """x·Wᵀ·scale + b; the file's `.bias` and `.scale` of the same name come along by themselves."""
        b, scale = b or sidecar(self, w, "bias"), scale or sidecar(self, w, "scale")
        return self._one("linear", (x, w, b, scale), name=stem(w.name), groups=groups)

    def expert_linear(self, x: Value, w: Value, ids: Value, b: Value | None = None, scale: Value | None = None) -> Value:
        """One expert's matrix a (token, place), with its sidecars."""
        b, scale = b or sidecar(self, w, "bias"), scale or sidecar(self, w, "scale")
        return self._one("expert_linear", (x, w, ids, b, scale), name=stem(w.name))

    def hadamard(self, x: Value, n: int) -> Value:
        return self._one("hadamard", (x,), n=n)

    # ---- row-wise arithmetic ----

    def rms_norm(self, x: Value, w: Value | None = None, eps: float = 1e-5, *, over: str = "mean") -> Value:
        return self._one("rms_norm", (x, w), name=stem(w.name) if w else None, eps=eps, over=over)

    def layer_norm(self, x: Value, w: Value | None = None, b: Value | None = None, eps: float = 1e-5) -> Value:
        b = b or (sidecar(self, w, "bias") if w else None)
        return self._one("layer_norm", (x, w, b), name=stem(w.name) if w else None, eps=eps)

    def softmax(self, x: Value, axis: int = -1) -> Value:
        return self._one("softmax", (x,), axis=axis % len(x.shape))

    def sum(self, x: Value, axis: int = -1) -> Value:
        return self._one("sum", (x,), axis=axis % len(x.shape))

    def add(self, x: Value, y: Value) -> Value:
        return self._one("add", (x, y))

    def mul(self, x: Value, y: Value) -> Value:
        return self._one("mul", (x, y))

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        return self._one("where", (condition, x, y))

    def angles(self, freq: npt.ArrayLike, *, comp: npt.ArrayLike | None = None, mag: float = 1.0, rows: int = 0) -> Value:
        """cos and sin of position·freq, [T, n/2, 2]; made once a step. `comp`: position component of each pair;
        `rows`: compression ratio whose completed entries' first positions are meant, [C_r, n/2, 2].
        """
        f = np.asarray(freq, np.float32)
        c = np.zeros(len(f), np.int32) if comp is None else np.asarray(comp, np.int32)
        symbol = f"C{rows}" if rows else "T"
        key = (f.tobytes(), c.tobytes(), mag, symbol)
        if key not in self._angles:
            positions = self.step.make("positions", (self._components, "T"), "i32")
            self._angles[key] = self._one("angles", (positions,), name="angles", freq=f, comp=c, mag=mag, rows=symbol)
        return self._angles[key]

    def rope(self, x: Value, cs: Value, *, pair: str = "adjacent", at: str = "start", inverse: bool = False) -> Value:
        return self._one("rope", (x, cs), pair=pair, at=at, inverse=inverse)

    def route(
        self,
        score: Value,
        bias: Value | None = None,
        ids: Value | None = None,
        *,
        k: int = 0,
        groups: int = 1,
        keep: int = 1,
        norm: str = "sum",
        eps: float = 0.0,
        scale: float = 1.0,
    ) -> tuple[Value, Value]:
        """Expert ids [T, k] and their weights [T, k]."""
        attrs = {"k": k, "groups": groups, "keep": keep, "norm": norm, "eps": eps, "scale": scale}
        chosen, weights = self._emit("route", (score, bias, ids), attrs)
        return chosen, weights

    def mix(self, w: Value, x: Value) -> Value:
        return self._one("mix", (w, x))

    def sinkhorn(self, x: Value, iters: int, eps: float) -> Value:
        return self._one("sinkhorn", (x,), iters=iters, eps=eps)

    # ---- sequences ----

    def kv_write(self, cache: Cache, k: Value, v: Value | None = None, *, rows: int = 0) -> None:
        """Store this step's rows; `rows`: the compression ratio whose completed entries these are."""
        self._emit("kv_write", (cache, k, v), {"rows": f"C{rows}" if rows else "T"})

    def attention(
        self,
        q: Value,
        sources: Sequence[Cache | Selected | tuple[Value, Value | None]],
        *,
        sinks: Value | None = None,
        bias: Value | None = None,
        scale: float = 1.0,
        softcap: float = 0.0,
        v_dim: int = 0,
        alibi: float = 0.0,
        buckets: int = 0,
        style: str = "causal",
        window: int = 0,
    ) -> Value:
        """One softmax over the visible rows of all sources; `style` and `window` speak of this step's own rows."""
        operands: list[Operand] = [q, sinks, bias]
        described: list[Source] = []
        for source in sources:
            if isinstance(source, Selected):
                operands += [source.cache, None, source.ids]
                described.append(Source(True, True, source.span))
            elif isinstance(source, Cache):
                operands += [source, None, None]
                described.append(Source(True))
            else:
                operands += [source[0], source[1], None]
                described.append(Source(False))
        return self._one(
            "attention", operands, sources=tuple(described), scale=scale, softcap=softcap, v_dim=v_dim, alibi=alibi,
            buckets=buckets, style=style, window=window,
        )  # fmt: skip

    def indexer(
        self, q: Value, w: Value, cache: Cache, within: Value | None = None, *, k: int, block: int = 1, span: int = 1
    ) -> Value:
        """The k best visible rows, or blocks of `block` rows; only inside `within`, whose ids stand for `span` rows each."""
        return self._one("indexer", (q, w, cache, within), k=k, block=block, span=span)

    def tail(self, x: Value, ring: Cache, *, rows: int = 0, pad: float = 0.0) -> Value:
        """Each wanted row behind its `back` predecessors; `rows`: compression ratio whose completed entries are wanted."""
        return self._one("tail", (x, ring), rows=f"C{rows}" if rows else "T", pad=pad)

    def ssm_scan(self, x: Value, dt: Value, a: Value, b: Value, c: Value, state: Cache) -> Value:
        return self._one("ssm_scan", (x, dt, a, b, c, state))

    def delta_rule(self, q: Value, k: Value, v: Value, beta: Value, g: Value, state: Cache, *, map: str = "tile") -> Value:
        return self._one("delta_rule", (q, k, v, beta, g, state), map=map)

    def pool(self, x: Value, kind: str) -> Value:
        return self._one("pool", (x,), kind=kind)

    def top_k(self, x: Value, k: int) -> tuple[Value, Value, Value]:
        values, ids, lse = self._emit("top_k", (x,), {"k": k})
        return values, ids, lse

    # ---- the end ----

    def program(self, **outputs: Value) -> Program:
        """The traced program with its named outputs."""
        return Program(self.name, tuple(self.ops), outputs)

    def _one(self, kind: str, inputs: Sequence[Operand], /, *, name: str | None = None, **attrs: Any) -> Value:
        (value,) = self._emit(kind, inputs, attrs, name)
        return value

    def _emit(self, kind: str, inputs: Sequence[Operand], attrs: dict[str, Any], name: str | None = None) -> tuple[Value, ...]:
        label = name or self.prefix + (attrs["kind"] if kind == "unary" else kind)
        outputs = tuple(Value(self._unique(label), s, t, tracer=self) for s, t in infer(kind, inputs, attrs))
        self.ops.append(Op(kind, tuple(inputs), outputs, attrs))
        return outputs

    def _unique(self, name: str) -> str:
        n = self._names[name] = self._names.get(name, 0) + 1
        return name if n == 1 else f"{name}#{n}"


def _int(dim: int | str) -> int:
    assert isinstance(dim, int), f"the size of {dim} is not known while a model is traced"
    return dim


def _bounds(part: object, size: int) -> tuple[int, int]:
    assert isinstance(part, slice) and part.step is None, "only plain slices"
    return (part.start or 0), (size if part.stop is None else part.stop)
