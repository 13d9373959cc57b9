"""`tensormill doctor`: what this machine offers, what is installed, and what is missing, with what mends it."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata, util
from pathlib import Path
from typing import Any

from tensormill.cli.settings import AsJson

_FEATURES = (  # as Linux spells them
    *("avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512vbmi", "gfni", "avx512_bf16"),
    *("amx_int8", "amx_bf16"),
)
_ARM = ("asimd", "asimddp", "i8mm", "bf16", "sve")
_NEEDED = (
    *("numpy", "gguf", "tokenizers", "jinja2", "llguidance", "msgspec", "cyclopts", "rich", "prompt_toolkit"),
    *("starlette", "uvicorn", "prometheus-client"),
)


def main(*, json_: AsJson = False) -> int:
    """Check this machine and this installation; 1 if something is missing without which models do not run.

    Parameters
    ----------
    json_
        Print JSON.
    """
    from tensormill.cli.listing import print_json, table

    found = {"machine": _machine(), "packages": _packages(), "backends": _backends(), "models": _models()}
    problems = _problems(found)
    if json_:
        print_json({**found, "problems": problems})
    else:
        rows = [(part, name, _text(value)) for part, values in found.items() for name, value in values.items()]
        print(table(rows))
        print("\n" + ("\n".join(f"! {problem}" for problem in problems) or "all is well"))
    return 1 if problems else 0


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _machine() -> dict[str, Any]:
    from tensormill.cli.listing import size

    model, flags = _cpu()
    wanted = _FEATURES if platform.machine() in ("x86_64", "AMD64") else _ARM
    return {
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "cpu": model,
        "threads": _threads(),
        "features": [name for name in wanted if name in flags],
        "memory": size(_memory()),
    }


def _threads() -> int:
    with suppress(ImportError):  # where packages are missing
        from tensormill.backends.cpu.cores import default_threads

        return default_threads()
    return os.cpu_count() or 1


def _cpu() -> tuple[str, set[str]]:
    """Name and feature flags, where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), set()
    pairs = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    table = {key.strip(): value.strip() for key, value in pairs.items()}
    return table.get("model name", platform.machine()), set((table.get("flags") or table.get("Features") or "").split())


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _packages() -> dict[str, str]:
    versions = {}
    for name in ("tensormill", *_NEEDED):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "present" if util.find_spec(name.replace("-", "_")) else "missing"
    return versions


def _backends() -> dict[str, str]:
    states = {"reference": "ready"}
    try:
        from tensormill.backends.cpu import _native  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        states["cpu"] = "not built"
    else:
        try:
            states["cpu"] = ". ".join(filter(None, (f"ready, {_native.isa()}", _native.isa_doubt())))
        except RuntimeError as why:  # a processor without AVX2, or TENSORMILL_ISA asks for what is not there
            states["cpu"] = str(why)
    return states


def _models() -> dict[str, str]:
    from tensormill.cli.listing import size
    from tensormill.cli.models import CACHE

    found = sorted({path for folder in ("models", "test-models") for path in (CACHE / folder).glob("*.gguf")})
    return {path.name: size(path.stat().st_size) for path in found} or {"none": f"in {CACHE}"}


def _problems(found: dict[str, dict[str, Any]]) -> list[str]:
    problems = [
        f"the package {name} is missing: pip install {name}"
        for name, version in found["packages"].items()
        if version == "missing" and name != "tensormill"
    ]
    state = found["backends"]["cpu"]
    if state == "not built":
        problems.append("the CPU backend is not built: `make build` in a checkout, or reinstall the package")
    elif not state.startswith("ready"):
        problems.append(f"the CPU backend does not run: {state}")
    features = found["machine"]["features"]
    if platform.machine() in ("x86_64", "AMD64") and "avx2" not in features and platform.system() == "Linux":
        problems.append("this CPU has no AVX2, which the CPU backend needs; --backend reference runs, slowly")
    return problems
