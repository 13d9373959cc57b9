"""The filters and tests of chat templates: Jinja's own, each behind a charge. Filters not listed do not exist."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import filters as jinja
from jinja2 import pass_context
from jinja2 import tests as jinja_tests
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext

from tensormill.chat import costs
from tensormill.chat.budget import Budget
from tensormill.chat.conventions import tojson

Cost = Callable[..., None]


def _print(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    budget.printed(value)


def _free(budget: Budget, *_: Any, **__: Any) -> None:
    budget.steps()


def _sequence(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    if isinstance(value, (str, list, tuple, dict, range)):
        budget.steps(len(value) + 1)


def _rows(budget: Budget, value: Any, count: int, fill_with: Any = None) -> None:
    _sequence(budget, value)
    budget.steps(max(0, int(count)))
    characters = budget.contents(fill_with)
    if characters or isinstance(fill_with, (list, tuple, dict)):
        for _ in range(int(count)):
            budget.contents(fill_with)


def _sum(budget: Budget, value: Any, *_: Any, **__: Any) -> None:
    budget.contents(value)
    sizes = [len(item) for item in value if isinstance(item, (list, tuple))]
    budget.steps(sum(sizes) * len(sizes) // 32)


def _join(budget: Budget, value: Any, d: Any = "", attribute: Any = None) -> None:
    budget.printed(value)
    budget.printed(d, len(value) if hasattr(value, "__len__") else 1)


def _indent(budget: Budget, value: Any, width: Any = 4, first: bool = False, blank: bool = False) -> None:
    budget.printed(value)
    lines = str(value).count("\n") + 1
    budget.text(lines * (len(width) if isinstance(width, str) else max(0, int(width))))


def _center(budget: Budget, value: Any, width: Any = 80) -> None:
    budget.printed(value)
    budget.text(int(width))


def _replace(budget: Budget, value: Any, old: Any, new: Any, count: Any = None) -> None:
    budget.printed(value)
    costs.METHODS[str, "replace"](budget, str(value), str(old), str(new), count)


def _wrap(
    budget: Budget, value: Any, width: Any = 79, break_long_words: Any = True, wrapstring: Any = None, *_: Any, **__: Any
) -> None:
    budget.printed(value)
    budget.text(len(str(value)) ** 2 // max(1, int(width)))  # long words are cut from the front, again and again
    budget.text(len(str(value)) * len(wrapstring or ""))


def _trim(budget: Budget, value: Any, chars: Any = None) -> None:
    budget.printed(value)
    costs.METHODS[str, "strip"](budget, str(value), chars)


def _words(budget: Budget, value: Any) -> None:
    budget.printed(value)
    budget.steps(len(str(value)) // 4)


def _round(budget: Budget, value: Any, precision: Any = 0, method: Any = "common") -> None:
    if not -100 <= int(precision) <= 100:
        raise SecurityError("round: precision is between -100 and 100")
    budget.steps()


@pass_context
def _tojson(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    return tojson(context.environment.budget, value, *args, **kwargs)  # type: ignore[attr-defined]


@pass_context
def _format(context: Context, value: Any, *args: Any, **kwargs: Any) -> str:
    return costs.percent(context.environment.budget, str(value), kwargs or args)  # type: ignore[attr-defined]


def _safe(value: Any) -> str:
    return str(value)  # output is never escaped, so nothing needs the mark


def _escape(value: Any) -> str:
    return str(jinja.FILTERS["escape"](value))


_OWN: dict[str, tuple[Cost, Callable[..., Any]]] = {
    "tojson": (_free, _tojson),
    "format": (_free, _format),
    "safe": (_print, _safe),
    "escape": (_print, _escape),
    "e": (_print, _escape),
}
_COSTS: dict[str, Cost] = {
    **dict.fromkeys(("upper", "lower", "capitalize", "title", "string", "truncate"), _print),
    **dict.fromkeys(("sort", "unique", "min", "max", "groupby", "dictsort"), _print),
    **dict.fromkeys(("first", "last", "length", "count", "list", "reverse", "items"), _sequence),
    **dict.fromkeys(("map", "select", "reject", "selectattr", "rejectattr"), _sequence),
    **dict.fromkeys(("abs", "attr", "d", "default", "float"), _free),
    "batch": _rows,
    "center": _center,
    "indent": _indent,
    "int": _sequence,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "slice": _rows,
    "sum": _sum,
    "trim": _trim,
    "wordcount": _words,
    "wordwrap": _wrap,
}
_LAZY = {"batch", "default", "d", "first", "items", "list", "map", "slice"} | {
    *("reject", "rejectattr", "select", "selectattr")
}


def _wrapped(name: str, cost: Cost, function: Callable[..., Any]) -> Callable[..., Any]:
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @pass_context
    def guarded(context: Context, value: Any = None, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = context.environment.budget  # type: ignore[attr-defined]
        if isinstance(value, Iterator) and not isinstance(value, LoopContext) and name not in _LAZY:
            value = list(value)
        cost(budget, value, *args, **kwargs)
        first = {
            "context": (context,),
            "eval_context": (context.eval_ctx,),
            "environment": (context.environment,),
        }.get(passed or "", ())
        return counted(budget, function(*first, value, *args, **kwargs))

    return guarded


def counted(budget: Budget, result: Any) -> Any:
    """What came out of a filter or a call, charged: containers whole and at once, generators item by item."""
    if isinstance(result, Iterator) and not isinstance(result, LoopContext):
        return _counting(budget, result)
    if not isinstance(result, (str, int, float, type(None))):
        budget.contents(result)
    return result


def _counting(budget: Budget, items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        budget.contents(item)
        yield item


def _test(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    operator = {"in": "in", "eq": "eq", "==": "eq", "equalto": "eq", "ne": "eq", "!=": "eq"}.get(name)
    ordered = name in ("lt", "<", "lessthan", "le", "<=", "gt", ">", "greaterthan", "ge", ">=")
    passed = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @pass_context
    def guarded(context: Context, value: Any, *args: Any) -> Any:
        budget: Budget = context.environment.budget  # type: ignore[attr-defined]
        if (operator or ordered) and args:
            costs.compare(budget, operator or "lt", value, args[0])
        elif name in ("lower", "upper") and not isinstance(value, str):
            budget.printed(value)
        budget.steps()
        first = (context.environment,) if passed == "environment" else ()
        return function(*first, value, *args)

    return guarded


FILTERS: dict[str, Any] = {
    **{name: _wrapped(name, cost, jinja.FILTERS[name]) for name, cost in _COSTS.items()},
    **{name: _wrapped(name, cost, function) for name, (cost, function) in _OWN.items()},
}
_JINJA_TESTS: dict[str, Any] = dict(jinja_tests.TESTS)
TESTS: dict[str, Any] = {name: _test(name, test) for name, test in _JINJA_TESTS.items()}
