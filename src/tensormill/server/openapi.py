"""The OpenAPI document, made from the table of endpoints and the types of their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tensormill import __version__
from tensormill.server.endpoint import Dialect, Endpoint
from tensormill.server.request import Values

_ERRORS = {
    "400": "The request cannot be served as it is",
    "401": "No valid API key",
    "404": "No such model, response or route",
    "413": "The body is too large",
    "429": "The queue is full; see Retry-After",
    "500": "The engine failed",
    "503": "The model is not loaded",
}
_ANY: Values = {"type": "object"}


def document(dialects: Sequence[Dialect], *, keyed: bool = False) -> Values:
    """OpenAPI 3.1."""
    types = {e.body: None for d in dialects for e in d.endpoints if e.body is not None}
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Values] = {}
    for dialect in dialects:
        for endpoint in dialect.endpoints:
            path = paths.setdefault(endpoint.path.replace(":path}", "}"), {})
            path[endpoint.method.lower()] = _operation(dialect, endpoint, of)
    made: Values = {
        "openapi": "3.1.0",
        "info": {"title": "TensorMill", "version": __version__, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": components},
    }
    if keyed:
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
    return made


def _operation(dialect: Dialect, endpoint: Endpoint, schemas: dict[Any, Values]) -> Values:
    content: Values = {"application/json": {"schema": _ANY}}
    if endpoint.path == "/metrics":
        content = {"text/plain": {"schema": {"type": "string"}}}
    if endpoint.streams:
        content[endpoint.media] = {"schema": {"type": "string"}}
    responses: Values = {"200": {"description": "Done", "content": content}}
    responses |= {status: {"description": why} for status, why in _ERRORS.items()}
    made: Values = {
        "summary": endpoint.about,
        "tags": [dialect.name],
        "operationId": f"{endpoint.method.lower()}_{(endpoint.path.strip('/') or 'index').translate(_NAMES)}",
        "responses": responses,
    }
    if endpoint.body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[endpoint.body]}}}
    parts = [p.strip("{}").removesuffix(":path") for p in endpoint.path.split("/") if p.startswith("{")]
    if parts:
        made["parameters"] = [{"name": p, "in": "path", "required": True, "schema": {"type": "string"}} for p in parts]
    return made


_NAMES = str.maketrans({"/": "_", "-": "_", ".": "_", "{": "", "}": "", ":": "_"})
