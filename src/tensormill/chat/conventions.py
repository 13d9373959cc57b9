"""What Hugging Face templates expect beyond plain Jinja: functions, `tojson`, `{% generation %}`.

Names, arguments and results are those of `transformers`; limits against abuse are ours.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import Extension
from jinja2.parser import Parser

from tensormill.chat.budget import Budget

_DIRECTIVES = re.compile(r"(?:[^%]|%[-_0^#]?[A-Za-z%])*")


class Generation(Extension):
    """`{% generation %}…{% endgeneration %}` marks what a model said; it only matters to training, so it is a scope."""

    tags = {"generation"}  # noqa: RUF012  (the type is Jinja's)

    def parse(self, parser: Parser) -> nodes.Node:
        """The tag and its body as a plain scope."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def raise_exception(message: object) -> NoReturn:
    """The template's own refusal of the messages."""
    raise JinjaError(str(message))


def strftime(now: datetime, form: object) -> str:
    """`now` by a plain strftime format of at most 256 characters (no widths, which could ask for gigabytes)."""
    text = str(form)
    if len(text) > 256 or not _DIRECTIVES.fullmatch(text):
        raise JinjaError(f"strftime_now cannot use the format {text[:40]!r}")
    return now.strftime(text)


def tojson(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as `transformers` writes it: no HTML escapes, characters as they are."""
    if (len(indent) if isinstance(indent, str) else indent or 0) > 16:
        raise JinjaError("tojson: indent is 16 at most")
    if separators is not None and sum(map(len, separators)) > 16:
        raise JinjaError("tojson: separators are 16 characters at most")
    budget.printed(value)
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, check_circular=True
    )
    pieces = []
    for piece in encoder.iterencode(value):
        budget.text(len(piece))
        pieces.append(piece)
    return "".join(pieces)
