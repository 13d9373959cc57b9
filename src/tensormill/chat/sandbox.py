"""Runs an untrusted Jinja template: it can read what it is given and write text, within a budget, and nothing else.

`Program` compiles once; every rendering gets an environment of its own, which holds the budget, so threads share
nothing. What things cost is in `costs.py` and `filters.py`; `rewrite.py` adds the hooks that Jinja lacks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import LoopControlExtension
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from tensormill.chat import costs
from tensormill.chat.budget import Budget, Exhausted, Limits, measure
from tensormill.chat.conventions import Generation, raise_exception, strftime
from tensormill.chat.filters import FILTERS, TESTS, counted
from tensormill.chat.rewrite import Guarding
from tensormill.errors import TemplateError

_FILE = "<chat template>"
_LONGEST = 2000  # characters of a message that the template may have made
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one rendering: Hugging Face's settings, and guards that draw on `budget`."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, budget: Budget, now: datetime | None = None) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, Generation], optimized=False)
        self.budget = budget
        self.finalize = self.guard_output
        self.filters = FILTERS
        self.tests = TESTS
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": Namespace,
            "cycler": Cycler,
            "joiner": Joiner,
            "raise_exception": raise_exception,
            "strftime_now": lambda form: strftime(now or datetime.now(), form),
        }
        self._functions = tuple(self.globals.values())

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        Guarding().visit(tree)
        return tree.set_environment(self)  # type: ignore[return-value]

    def wrap_str_format(self, value: Any) -> None:
        """`str.format` stays what it is here; `call` guards it."""

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An arithmetic operator."""
        costs.binary(self.budget, operator, left, right)
        if operator == "%" and isinstance(left, str):
            return costs.percent(self.budget, left, right)
        return self.binop_table[operator](left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a guard, a listed method of a built-in type, a macro, or one of our functions; SecurityError else."""
        self, obj = __self, __obj
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if isinstance(obj, MethodType) and obj.__self__ is self:
            return obj(*args)
        with self.budget.nested():
            self.budget.contents(args)
            self.budget.contents(kwargs)
            if isinstance(obj, BuiltinMethodType):
                return counted(self.budget, costs.call_method(self, self.budget, obj, args, kwargs))
            if not self._allowed(obj):
                raise SecurityError(f"a chat template may not call {type(obj).__name__!r} objects")
            return counted(self.budget, __context.call(obj, *args, **kwargs))

    def _allowed(self, obj: Any) -> bool:
        if isinstance(obj, MethodType):
            obj = obj.__self__
            return isinstance(obj, (LoopContext, Cycler))
        own = (Macro, LoopContext, BlockReference, Joiner, Undefined, type(None), str, int, float, list, dict)
        return isinstance(obj, own) or any(obj is function for function in self._functions)

    @pass_context
    def guard_output(self, context: Context, value: Any) -> Any:
        """`{{ value }}`."""
        self.budget.printed(value)
        return value

    def guard_turn(self, characters: int) -> bool:
        """A turn of a loop or macro whose body holds so much plain text."""
        self.budget.text(characters)
        return True

    def guard_contents(self, value: Any) -> Any:
        """A literal list, tuple or dict: its whole tree is charged, so that shared parts cannot grow exponentially."""
        self.budget.contents(value)
        return value

    def guard_concat(self, *values: Any) -> str:
        """`a ~ b`."""
        for value in values:
            self.budget.printed(value)
        return "".join(map(str, values))

    def guard_compare(self, operator: str, left: Any, right: Any) -> bool:
        """`left operator right`."""
        costs.compare(self.budget, operator, left, right)
        return _COMPARE[operator](left, right)

    def guard_spread(self, values: Any) -> Any:
        """`f(*values)`."""
        self.budget.steps(len(values) if hasattr(values, "__len__") else 1)
        return values

    def guard_slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """`value[start:stop:step]`."""
        size = len(value) if hasattr(value, "__len__") else 1
        self.budget.text(size) if isinstance(value, str) else self.budget.steps(size // 8 + 1)
        return value[start:stop:step]


class Program:
    """A compiled template.

    Raises TemplateError, with the line, if the source is not valid Jinja, is too long, or loads other templates.
    """

    def __init__(self, source: str, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        if len(source) > self.limits.source:
            raise TemplateError(f"the chat template has {len(source)} characters; {self.limits.source} is the most")
        sandbox = Sandbox(Budget(self.limits))
        try:
            self._code = sandbox.compile(source, filename=_FILE)
        except TemplateSyntaxError as error:
            raise TemplateError(f"the chat template is broken in line {error.lineno}: {error.message}") from None
        except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
            raise TemplateError(f"the chat template cannot be compiled: {type(error).__name__}: {error}") from None

    def render(self, variables: Mapping[str, Any], *, now: datetime | None = None) -> str:
        """The text for `variables`, plain JSON-like values; TemplateError, with the line, if it fails or exhausts."""
        budget = Budget(self.limits, *measure(dict(variables), 50_000_000))
        sandbox = Sandbox(budget, now)
        template = sandbox.template_class.from_code(sandbox, self._code, sandbox.globals)
        try:
            return "".join(template.root_render_func(template.new_context(dict(variables))))
        except Exception as error:
            line = _line(error, template.get_corresponding_lineno)
            where = f"the chat template, line {line}" if line else "the chat template"
            raise _explained(error, where) from None


def _line(error: BaseException, original: Callable[[int], int]) -> int | None:
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = original(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _explained(error: Exception, where: str) -> TemplateError:
    told = str(error.message if isinstance(error, JinjaError) else error)
    told = told if len(told) <= _LONGEST else told[:_LONGEST] + "…"
    if isinstance(error, RecursionError):
        return Exhausted(f"{where}: it recurses too deep")
    if isinstance(error, Exhausted):
        return Exhausted(f"{where}: {told}")
    if isinstance(error, JinjaError):
        return TemplateError(f"{where}: {told}")
    return TemplateError(f"{where}: {type(error).__name__}: {told}")
