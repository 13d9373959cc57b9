"""Routes of no dialect: health, metrics, version, properties, the tokenizer, the chat template, the OpenAPI document."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tensormill import __version__
from tensormill.bounds import MOST_TOKENIZED
from tensormill.server import aside
from tensormill.server.endpoint import Dialect, Endpoint
from tensormill.server.exchange import Json, body
from tensormill.server.openai import fields
from tensormill.server.openai.chat import Message, Tool, message
from tensormill.server.openapi import document
from tensormill.server.preparing import chat
from tensormill.server.problem import Problem
from tensormill.server.request import Ask, Values
from tensormill.server.served import ServedModel
from tensormill.server.server import Server


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """The body of /tokenize: a text, as `content` or `prompt`."""

    content: str | None = None
    prompt: str | None = None
    model: str = ""
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """The body of /detokenize."""

    tokens: list[int]
    model: str = ""


class TemplateRequest(msgspec.Struct, kw_only=True):
    """The body of /apply-template."""

    messages: list[Message]
    model: str = ""
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


async def index(server: Server, request: Request) -> Response:
    """What this is, for those who try the address; Ollama's clients look whether it answers."""
    apis = {d.name: next(e.path for e in d.endpoints if e.streams) for d in _dialects() if any(e.streams for e in d.endpoints)}
    return Json(
        {"server": f"TensorMill {__version__}", "routes": "/openapi.json", "documentation": "docs/server.md", "apis": apis}
    )


async def live(server: Server, request: Request) -> Response:
    """The server runs."""
    return Json({"status": "ok"})


async def ready(server: Server, request: Request) -> Response:
    """Requests are taken: by a model that is loaded, or by one that can be; 503 while that is not so."""
    models = {m.name: _state(m) for m in server.registry.models.values()}
    states = {state.split()[0] for state in models.values()}
    status = next(s for s in ("ok", "loading", "unloaded", "failed") if s in states)
    fine = status in ("ok", "unloaded")
    return Json({"status": "ok" if fine else status, "models": models}, status_code=200 if fine else 503)


def _state(model: ServedModel) -> str:
    """ok, how much of it is loaded, unloaded (until it is asked for), or failed (when it was)."""
    progress = model.engine.progress
    if model.engine.loaded:
        return "ok"
    if model.engine.active or model.requests:
        return f"loading {progress.done / max(progress.total, 1):.0%}"
    return "failed" if model.engine.failed else "unloaded"


async def metrics(server: Server, request: Request) -> Response:
    """Prometheus' text format."""
    text = await server.meter.text(list(server.registry.models.values()))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def version(server: Server, request: Request) -> Response:
    """The version of this software."""
    return Json({"version": __version__})


async def props(server: Server, request: Request) -> Response:
    """What a model is, and how it is run."""
    model = await _known(server, request.query_params.get("model", ""))
    info = model.engine.info
    return Json(
        {
            "model": model.name,
            "file": model.path.name,
            "loaded": model.engine.loaded,
            "n_ctx": info.context if info else 0,
            "cached_tokens": info.cached if info else 0,
            "total_slots": model.config.sequences,
            "chat_template": model.template.source,
            "chat_template_built_in": model.template.guessed,
            "chat_template_tools": model.template.tells_tools,
            "chat_format": model.format.name,
            "pooling": model.pooling,
            "bos_token": _token(model, model.tokenizer.bos),
            "eos_token": _token(model, model.tokenizer.eos),
            "default_generation_settings": dataclasses.asdict(model.sampling),
            "build_info": f"tensormill {__version__}",
        }
    )


async def tokenize(server: Server, request: Request) -> Response:
    """Ids of a text."""
    got = await body(request, TokenizeRequest, server.config.max_body)
    text = got.content if got.content is not None else got.prompt
    if text is None:
        raise Problem("content is missing: the text to tokenize", param="content")
    if len(text) > MOST_TOKENIZED:
        raise Problem(f"content has {len(text)} characters; at most {MOST_TOKENIZED} are tokenized at once", param="content")
    model = await _known(server, got.model)
    tokenizer = model.tokenizer
    encode = partial(tokenizer.encode, text, add_special=got.add_special, parse_special=got.parse_special)
    ids = await aside.requests.run(server.caller(request).key, encode)
    shown: list[Any] = [{"id": i, "piece": _piece(tokenizer.piece(i))} for i in ids] if got.with_pieces else ids
    more = {"max_model_len": model.engine.info.context} if model.engine.info else {}
    return Json({"tokens": shown, "count": len(ids), **more})


async def detokenize(server: Server, request: Request) -> Response:
    """The text of ids."""
    got = await body(request, DetokenizeRequest, server.config.max_body)
    model = await _known(server, got.model)
    text = await aside.requests.run(server.caller(request).key, model.tokenizer.decode, got.tokens)
    return Json({"content": text, "prompt": text})


async def apply_template(server: Server, request: Request) -> Response:
    """The prompt that a conversation becomes."""
    got = await body(request, TemplateRequest, server.config.max_body)
    model = await _known(server, got.model)
    tools: list[Values] | None = [msgspec.to_builtins(t) for t in got.tools] if got.tools else None
    ask = Ask(
        messages=[message(m, f"messages[{i}]") for i, m in enumerate(got.messages)],
        tools=tools,
        template_values=got.chat_template_kwargs,
    )
    made = await aside.requests.run(server.caller(request).key, chat, model, ask)
    return Json({"prompt": made.text})


async def openapi(server: Server, request: Request) -> Response:
    """This API as an OpenAPI document."""
    return Json(document(_dialects(), keyed=server.config.api_key_file is not None))


def _dialects() -> Sequence[Dialect]:
    from tensormill.server.app import DIALECTS  # of which this is one

    return DIALECTS


async def _known(server: Server, name: str) -> ServedModel:
    """A model whose header has been read; it need not be loaded."""
    model = server.registry.find(name)
    await aside.reading(model.read)
    return model


def _token(model: ServedModel, token: int | None) -> str:
    return "" if token is None else model.tokenizer.tokens[token]


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


DIALECT = Dialect(
    "TensorMill",
    (
        Endpoint("GET", "/", index, "What this is, and where its routes are described"),
        Endpoint("GET", "/health", ready, "200 once a model is loaded, or if none need be; needs no key"),
        Endpoint("GET", "/health/live", live, "200 while the server runs; needs no key"),
        Endpoint("GET", "/health/ready", ready, "The same as /health"),
        Endpoint("GET", "/metrics", metrics, "Metrics for Prometheus"),
        Endpoint("GET", "/version", version, "The version of this software"),
        Endpoint("GET", "/props", props, "What a model is, and how it is run"),
        Endpoint("POST", "/tokenize", tokenize, "Ids of a text", TokenizeRequest),
        Endpoint("POST", "/detokenize", detokenize, "The text of ids", DetokenizeRequest),
        Endpoint("POST", "/apply-template", apply_template, "The prompt that a conversation becomes", TemplateRequest),
        Endpoint("GET", "/openapi.json", openapi, "This document"),
    ),
    fields.error,
)
