"""`/api/tags`, `/api/ps`, `/api/show`, `/api/version`: what is served, what is loaded, what a model is."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import time
from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tensormill import __version__
from tensormill.config import SamplingConfig
from tensormill.server.aside import reading
from tensormill.server.endpoint import Endpoint
from tensormill.server.exchange import Json, body
from tensormill.server.ollama import asking
from tensormill.server.ollama.fields import NameRequest, Options
from tensormill.server.ollama.writing import stamp
from tensormill.server.request import Values
from tensormill.server.served import ServedModel
from tensormill.server.server import Server

_FOREVER = 100 * 365 * 86400.0
_OPTIONS = {"penalty_window": "repeat_last_n", "max_tokens": "num_predict"}
_LONGEST = 64  # items of a list that are shown unless `verbose`


async def tags(server: Server, request: Request) -> Response:
    """All models, by name and alias."""
    return Json({"models": await reading(_tags, server)})


def _tags(server: Server) -> list[Values]:
    names = [*server.registry.models, *server.registry.aliases]
    return [_entry(name, server.registry.find(name)) for name in names]


async def ps(server: Server, request: Request) -> Response:
    """The models that are loaded, and until when."""
    return Json({"models": await reading(_ps, server)})


def _ps(server: Server) -> list[Values]:
    found = []
    for model in server.registry.models.values():
        if info := model.engine.info:
            until = stamp(model.expires or time.time() + (_FOREVER if model.keep is None else model.keep))
            more = {"expires_at": until, "size_vram": 0, "context_length": info.context}
            found.append({**_entry(model.name, model), "size": model.memory, **more})
    return found


def _entry(name: str, model: ServedModel) -> Values:
    stat = model.path.stat()
    return {
        "name": name,
        "model": name,
        "modified_at": stamp(stat.st_mtime),
        "size": model.size,
        "digest": _digest(model.path.name, stat.st_size, stat.st_mtime_ns),
        "details": _details(model),
    }


def _digest(*parts: object) -> str:
    """Tells versions of a file apart; not the hash of its contents, which would take a minute to read."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def _details(model: ServedModel) -> Values:
    family = model.metadata.str("general.architecture", default="")
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": _rounded(_parameters(model)),
        "quantization_level": _quantization(model),
    }


def _parameters(model: ServedModel) -> int:
    return sum(math.prod(t.shape) for t in model.file.tensors.values())


def _rounded(n: int) -> str:
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if n >= size:
            return f"{n / size:.2f}".rstrip("0").rstrip(".") + letter
    return str(n)


def _quantization(model: ServedModel) -> str:
    """The mixture that the file says it is, else the type that most of its weights have."""
    from gguf import LlamaFileType

    said = model.metadata.get("general.file_type")
    if isinstance(said, int) and said in LlamaFileType._value2member_map_:
        return str(LlamaFileType(said).name).removeprefix("MOSTLY_").removeprefix("ALL_")
    count: Counter[str] = Counter()
    for tensor in model.file.tensors.values():
        count[tensor.type.name] += tensor.nbytes
    return count.most_common(1)[0][0] if count else ""


async def show(server: Server, request: Request) -> Response:
    """What a model is."""
    got = await body(request, NameRequest, server.config.max_body)
    model = asking.find(server.registry, got.model or got.name)
    return Json(await reading(_show, model, bool(got.verbose)))


def _show(model: ServedModel, verbose: bool) -> Values:
    license = model.metadata.get("general.license")
    return {
        "modelfile": f"FROM {model.path.name}\n",
        "parameters": "\n".join(_parameter_lines(model.sampling)),
        "template": model.template.source,
        "license": license if isinstance(license, str) else "",
        "details": _details(model),
        "model_info": {"general.parameter_count": _parameters(model), **_info(model, verbose)},
        "capabilities": _capabilities(model),
        "modified_at": stamp(model.path.stat().st_mtime),
    }


def _parameter_lines(sampling: SamplingConfig) -> list[str]:
    values = {_OPTIONS.get(name, name): value for name, value in dataclasses.asdict(sampling).items()}
    names = [f for f in Options.__struct_fields__ if isinstance(values.get(f), (int, float))]
    return [f"{name:<30} {values[name]}" for name in names]


def _info(model: ServedModel, verbose: bool) -> Values:
    """The file's keys; long lists only if wanted."""
    found: Values = {}
    for key in model.metadata:
        value: Any = model.metadata[key]
        value = value.tolist() if hasattr(value, "tolist") else value
        short = not isinstance(value, list) or len(value) <= _LONGEST
        found[key] = _finite(value) if verbose or short else None
    return found


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _capabilities(model: ServedModel) -> list[str]:
    source, form = model.template.source, model.format
    able = {
        "completion": True,
        "tools": bool(form.calls) and "tools" in source,
        "insert": all(model.tokenizer.special_id(role) is not None for role in ("fim_pre", "fim_suf", "fim_mid")),
        "thinking": any(word in source for word in form.thinks),
        "embedding": f"{model.metadata.get('general.architecture')}.pooling_type" in model.metadata,
    }
    return [name for name, has in able.items() if has]


async def version(server: Server, request: Request) -> Response:
    """The version of this software (not of an Ollama)."""
    return Json({"version": __version__})


ENDPOINTS = (
    Endpoint("GET", "/api/tags", tags, "The models that are served"),
    Endpoint("GET", "/api/ps", ps, "The models that are loaded"),
    Endpoint("POST", "/api/show", show, "What a model is", NameRequest),
    Endpoint("GET", "/api/version", version, "The version of this software"),
)
