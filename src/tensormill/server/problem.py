"""Why a request cannot be served, in no dialect's shape: each dialect writes it as its clients expect."""

from __future__ import annotations

from tensormill.errors import TensorMillError

_LONGEST = 2000  # characters of a message: what a client sent may stand in it, but not come back whole


class Problem(TensorMillError):
    """An answer other than 200; its `kind` is one of those that `_STATUS` has.

    `param` names the field at fault, `code` is OpenAI's word for it, `retry` the seconds after which to try again.
    """

    def __init__(
        self, message: str, *, kind: str = "invalid", param: str | None = None, code: str | None = None, retry: int = 0
    ) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]} …")
        self.kind = kind
        self.param = param
        self.code = code
        self.retry = retry

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUS[self.kind]


_STATUS = {
    "invalid": 400, "auth": 401, "forbidden": 403, "missing": 404, "method": 405, "slow": 408, "large": 413, "busy": 429,
    "engine": 500, "loading": 503, "timeout": 504,
}  # fmt: skip
