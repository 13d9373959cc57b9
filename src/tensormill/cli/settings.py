"""Flags: how the settings of `tensormill.config` become options, and the call of a verb with them.

The names and help texts come from the dataclasses; only the few that differ on the command line are listed here.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from tensormill.config import EngineConfig, SamplingConfig

_NAMES = {"context": "ctx", "kv_type": "kv", "json_": "json"}

ModelFlags = Annotated[EngineConfig, Parameter(name="*", group="Model")]
SamplingFlags = Annotated[SamplingConfig, Parameter(name="*", group="Sampling")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]


def _flag(field: str) -> str:
    return _NAMES.get(field, field.strip("_").replace("_", "-"))


def call(verb: str, function: Callable[..., int], words: list[str]) -> int:
    """Parse `words` by the signature of `function` and call it; 2 for wrong usage."""
    app = App(
        name=f"tensormill {verb}",
        version_flags=[],
        result_action="return_value",
        default_parameter=Parameter(name_transform=_flag, negative_iterable="", negative_none=""),
    )
    app.default(function)
    try:
        code = app(words, exit_on_error=False)
    except CycloptsError:
        return 2
    return int(code or 0)


def with_suggestions(sampling: SamplingConfig, metadata: Mapping[str, object]) -> SamplingConfig:
    """`sampling` with the file's suggestions for settings that have no flag on this command line."""
    from tensormill.sampling import suggested

    given = {word.split("=", 1)[0] for word in sys.argv}
    chosen: dict[str, Any] = {
        field.name: getattr(sampling, field.name) for field in dataclasses.fields(sampling) if f"--{_flag(field.name)}" in given
    }
    return dataclasses.replace(suggested(metadata, sampling), **chosen)
