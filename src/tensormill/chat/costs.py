"""What each operation that a template may use costs, charged before it runs. What is not listed is refused.

Methods of built-in types and filters are allowed by name. Most cost their inputs; those that can make much out of
little (padding, repetition, formats), or work long on little (searching backwards), have their own rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import SandboxedEnvironment, SandboxedFormatter

from tensormill.chat.budget import Budget

LARGEST_BITS = 4096
WIDEST = 9999

_PERCENT_WIDTH = re.compile(r"%[-#0 +]*\d*\.?(?:\*|\d{5,})")
_LONG_NUMBER = re.compile(r"\d{5,}")


def _pad(budget: Budget, text: str, width: Any, fill: str = " ") -> None:
    budget.text(max(len(text), int(width)))


def _expand(budget: Budget, text: str, size: Any = 8) -> None:
    budget.text(len(text) + text.count("\t") * max(0, int(size)))


def _replace(budget: Budget, text: str, old: str, new: str, count: Any = None) -> None:
    found = text.count(old)
    found = found if count is None or int(count) < 0 else min(found, int(count))
    budget.text(len(text) + found * max(0, len(new) - len(old)))


def _split(budget: Budget, text: str, sep: str | None = None, maxsplit: Any = -1) -> None:
    pieces = len(text) // 4 if sep is None else text.count(sep)
    budget.steps((min(pieces, int(maxsplit)) if int(maxsplit) >= 0 else pieces) + 1)
    budget.text(len(text))


def _split_back(budget: Budget, text: str, sep: str | None = None, maxsplit: Any = -1) -> None:
    _split(budget, text, sep, maxsplit)
    _search_back(budget, text, sep or "")


def _search_back(budget: Budget, text: str, wanted: str, *_: Any) -> None:
    budget.text(len(text) * len(wanted) // 16)  # the search from the right has no linear worst case


def _strip(budget: Budget, text: str, characters: str | None = None) -> None:
    budget.text(len(text) * (len(characters or "") // 32 + 1))


def _lines(budget: Budget, text: str, keepends: Any = False) -> None:
    budget.steps(len(text) // 8 + 1)
    budget.text(len(text))


def _text(budget: Budget, text: str, *_: Any) -> None:
    budget.text(len(text))


def _search(budget: Budget, text: str, *_: Any) -> None:
    budget.steps(len(text) // 4096 + 1)


def _shallow(budget: Budget, value: Any, *_: Any) -> None:
    budget.steps(len(value) // 64 + 1)


def join(budget: Budget, separator: str, items: Iterable[Any]) -> str:
    """`separator.join(items)` with strings only, as `str.join` has it."""
    parts = []
    for item in items:
        budget.text(len(separator) + (len(item) if isinstance(item, str) else 0))
        parts.append(item)
    return separator.join(parts)


_TEXT = "capitalize casefold lower removeprefix removesuffix swapcase title upper partition"
_SEARCH = (
    "count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable"
    " isspace istitle isupper startswith"
)
METHODS: dict[tuple[type, str], Callable[..., None]] = {
    **{(str, name): _text for name in _TEXT.split()},
    **{(str, name): _search for name in _SEARCH.split()},
    **{(str, name): _pad for name in ("center", "ljust", "rjust", "zfill")},
    **{(str, name): _search_back for name in ("rfind", "rindex", "rpartition")},
    **{(str, name): _strip for name in ("strip", "lstrip", "rstrip")},
    (str, "expandtabs"): _expand,
    (str, "replace"): _replace,
    (str, "split"): _split,
    (str, "rsplit"): _split_back,
    (str, "splitlines"): _lines,
    **{(dict, name): _shallow for name in ("get", "items", "keys", "values", "copy")},
    **{(kind, name): _shallow for kind in (list, tuple) for name in ("index", "count")},
    (list, "copy"): _shallow,
    (float, "is_integer"): lambda budget, value: budget.steps(),
}


def call_method(environment: SandboxedEnvironment, budget: Budget, method: Any, args: Any, kwargs: Any) -> Any:
    """Call a bound method of a built-in type if it is on the list; SecurityError if not."""
    owner, name = method.__self__, method.__name__
    if isinstance(owner, str) and name in ("format", "format_map"):
        if name == "format_map":
            args, kwargs = (), args[0]
        return _Formatter(environment, budget).vformat(owner, args, kwargs)
    if isinstance(owner, str) and name == "join":
        return join(budget, owner, *args, **kwargs)
    cost = METHODS.get((type(owner), name))
    if cost is None:
        raise SecurityError(f"a chat template may not call {type(owner).__name__}.{name}")
    cost(budget, owner, *args, **kwargs)
    return method(*args, **kwargs)


class _Formatter(SandboxedFormatter):
    """`str.format` whose widths are bounded and whose fields are charged."""

    def __init__(self, environment: SandboxedEnvironment, budget: Budget) -> None:
        super().__init__(environment)
        self._budget = budget

    def format_field(self, value: Any, format_spec: str) -> Any:
        """One field; SecurityError for a width over `WIDEST`."""
        if _LONG_NUMBER.search(format_spec):
            raise SecurityError(f"a width in a format is at most {WIDEST}")
        self._budget.printed(value)
        self._budget.text(WIDEST if format_spec else 0)
        return Formatter.format_field(self, value, format_spec)

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """`!r` and `!s`."""
        self._budget.printed(value)
        return super().convert_field(value, conversion)


def percent(budget: Budget, form: str, values: Any) -> str:
    """`form % values` with bounded widths."""
    if _PERCENT_WIDTH.search(form) or ("%(" in form and _LONG_NUMBER.search(form)):
        raise SecurityError(f"a width in a format is a number of at most {WIDEST}")
    fields = form.count("%")
    width = WIDEST if re.search(r"%[^%]*?\d", form) else 0
    budget.text(len(form) + fields * width)
    budget.printed(values, fields)
    return str(form % values)


def _whole(value: Any) -> bool:
    return isinstance(value, int)


def binary(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Charge `left operator right`; SecurityError for integers that would grow without bound."""
    budget.steps()
    if operator == "*":
        if _whole(left) and _whole(right):
            _check_bits(left.bit_length() + right.bit_length())
        for value, times in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and _whole(times):
                size = len(value) * max(0, times)
                budget.text(size) if isinstance(value, str) else budget.steps(size)
    elif operator == "**" and _whole(left) and _whole(right):
        _check_bits(left.bit_length() * max(0, right))
    elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
        size = len(left) + len(right)
        budget.text(size) if isinstance(left, str) else budget.steps(size // 8)


def _check_bits(bits: int) -> None:
    if bits > LARGEST_BITS:
        raise SecurityError(f"integers in a chat template have at most {LARGEST_BITS} bits")


def compare(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Charge a comparison: two trees are walked as far as the smaller one, `in` looks at each element."""
    simple = isinstance(left, (str, int, float, type(None)))
    if operator in ("in", "notin"):
        size = len(right) if isinstance(right, (str, list, tuple)) else 64
        if not simple:
            before = budget.steps_left
            budget.contents(left)
            budget.steps((before - budget.steps_left) * size // 16)
        budget.steps(size // 64 + 1)
    else:
        budget.steps()
        if not simple and not isinstance(right, (str, int, float, type(None))):
            budget.contents(left)
