"""The `unary` kinds as methods of the tracer, and their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensormill.program.ir import Operand, Value

KINDS = (
    "affine", "clamp", "silu", "gelu", "gelu_tanh", "gelu_quick", "relu", "relu2", "sigmoid", "tanh", "exp", "log", "sqrt",
    "softplus", "floor", "mod",
)  # fmt: skip


class Unary:
    """Element-wise functions of one value; `a` and `b` are the two numbers that affine, clamp and mod take."""

    def _one(self, kind: str, inputs: Sequence[Operand], /, *, name: str | None = None, **attrs: Any) -> Value:
        raise TypeError("only the tracer emits ops")

    def unary(self, x: Value, kind: str, a: float = 0.0, b: float = 0.0) -> Value:
        return self._one("unary", (x,), kind=kind, a=a, b=b)

    def affine(self, x: Value, a: float, b: float = 0.0) -> Value:
        """a·x + b."""
        return self.unary(x, "affine", a, b)

    def scale(self, x: Value, a: float) -> Value:
        return x if a == 1.0 else self.affine(x, a)

    def softcap(self, x: Value, cap: float) -> Value:
        """cap·tanh(x / cap); none if cap is 0."""
        return self.scale(self.tanh(self.scale(x, 1.0 / cap)), cap) if cap else x

    def clamp(self, x: Value, low: float, high: float) -> Value:
        return self.unary(x, "clamp", low, high)

    def mod(self, x: Value, n: float) -> Value:
        return self.unary(x, "mod", n)

    def silu(self, x: Value) -> Value:
        return self.unary(x, "silu")

    def gelu(self, x: Value) -> Value:
        return self.unary(x, "gelu")

    def gelu_tanh(self, x: Value) -> Value:
        return self.unary(x, "gelu_tanh")

    def gelu_quick(self, x: Value) -> Value:
        return self.unary(x, "gelu_quick")

    def relu(self, x: Value) -> Value:
        return self.unary(x, "relu")

    def relu2(self, x: Value) -> Value:
        return self.unary(x, "relu2")

    def sigmoid(self, x: Value) -> Value:
        return self.unary(x, "sigmoid")

    def tanh(self, x: Value) -> Value:
        return self.unary(x, "tanh")

    def exp(self, x: Value) -> Value:
        return self.unary(x, "exp")

    def log(self, x: Value) -> Value:
        return self.unary(x, "log")

    def sqrt(self, x: Value) -> Value:
        return self.unary(x, "sqrt")

    def softplus(self, x: Value) -> Value:
        return self.unary(x, "softplus")

    def floor(self, x: Value) -> Value:
        return self.unary(x, "floor")
