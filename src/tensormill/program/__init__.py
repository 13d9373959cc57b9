"""A model as a program: values, ops and caches, the tracer that model files call, passes, weight recipes, the step."""

from tensormill.program.backend import Backend, Executable, Limits
from tensormill.program.ir import Cache, Op, Program, Source, Value
from tensormill.program.recipe import Cut, Recipe
from tensormill.program.step import Run, Step, build_step
from tensormill.program.tracer import Selected, Tracer
from tensormill.program.weights import Scope, WeightSource

__all__ = [
    "Backend", "Cache", "Cut", "Executable", "Limits", "Op", "Program", "Recipe", "Run", "Scope", "Selected", "Source", "Step",
    "Tracer", "Value", "WeightSource", "build_step",
]  # fmt: skip
