"""`GET /v1/models` as Anthropic's clients read it: pages of models, each with its name and dates."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from tensormill.server.exchange import Json
from tensormill.server.problem import Problem
from tensormill.server.request import Values
from tensormill.server.server import Server

_MOST = 1000


async def listing(server: Server, request: Request) -> Response:
    """A page of all names, aliases too."""
    query = request.query_params
    limit = query.get("limit", "20")
    if not limit.isdecimal() or not 1 <= int(limit) <= _MOST:
        raise Problem(f"limit must be between 1 and {_MOST}, not {limit!r}", param="limit")
    names = [*server.registry.models, *server.registry.aliases]
    after, before = (_place(names, query.get(key), key) for key in ("after_id", "before_id"))
    rest = names[: len(names) if before is None else before]
    rest = rest[0 if after is None else after + 1 :]
    page = rest[-int(limit) :] if before is not None else rest[: int(limit)]
    ends = {"first_id": page[0], "last_id": page[-1]} if page else {"first_id": None, "last_id": None}
    return Json({"data": [one(server, name) for name in page], "has_more": len(page) < len(rest), **ends})


def one(server: Server, name: str) -> Values:
    """One model."""
    model = server.registry.find(name)
    most = model.engine.info.context if model.engine.info else None
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": most,
        "max_tokens": most,
    }


def _place(names: list[str], name: str | None, key: str) -> int | None:
    if name is None:
        return None
    if name not in names:
        raise Problem(f"{key} is {name!r}, which is no model here", param=key)
    return names.index(name)
