"""Flags: how the settings of `tensormill.config` become options, and the call of a verb with them.

The names and help texts come from the dataclasses; only the few that differ on the command line are listed here.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

from tensormill.config import EngineConfig, SamplingConfig
from tensormill.errors import RequestError

_NAMES = {"context": "ctx", "json_": "json"}

ModelFlags = Annotated[EngineConfig, Parameter(name="*", group="Model")]
SamplingFlags = Annotated[SamplingConfig, Parameter(name="*", group="Sampling")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]


def _flag(field: str) -> str:
    return _NAMES.get(field, field.strip("_").replace("_", "-"))


def call(verb: str, function: Callable[..., int], words: list[str]) -> int:
    """Parse `words` by the signature of `function` and call it; RequestError for wrong usage."""
    app = App(
        name=f"tensormill {verb}",
        version_flags=[],
        result_action="return_value",
        default_parameter=Parameter(name_transform=_flag, negative_iterable="", negative_none=""),
    )
    app.default(function)
    try:
        code = app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise RequestError(f"{_wrong(error)} (tensormill {verb} --help lists the options)") from None
    return int(code or 0)


def _wrong(error: CycloptsError) -> str:
    """What is wrong with the command line, in our words where the library's mislead."""
    if isinstance(error, UnusedCliTokensError):
        return f"there is no place for {shlex.join(error.unused_tokens or [])}; a text with spaces needs quotes"
    if isinstance(error, MissingArgumentError) and error.argument is not None and not error.argument.tokens:
        return f"{error.argument.name} is missing"
    return str(error).strip().rstrip(".")


def with_suggestions(sampling: SamplingConfig, metadata: Mapping[str, object]) -> SamplingConfig:
    """`sampling` with the file's suggestions for settings that have no flag on this command line."""
    from tensormill.sampling import suggested

    given = {word.split("=", 1)[0] for word in sys.argv}
    chosen: dict[str, Any] = {
        field.name: getattr(sampling, field.name) for field in dataclasses.fields(sampling) if f"--{_flag(field.name)}" in given
    }
    return dataclasses.replace(suggested(metadata, sampling), **chosen)
