"""API keys: a file of them, and who a key belongs to. Only digests are kept, and comparing takes the same time for all."""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

from tensormill.errors import RequestError, told

log = logging.getLogger("tensormill.server")


class Keys:
    """The keys that open a server; without any, it is open."""

    def __init__(self, keys: dict[str, str] | None = None) -> None:
        self._digests = [(name, _digest(key)) for key, name in (keys or {}).items()]

    def __bool__(self) -> bool:
        return bool(self._digests)

    @property
    def owners(self) -> int:
        """How many there are whose keys these are."""
        return len({name for name, _ in self._digests})

    @classmethod
    def read(cls, path: Path) -> Keys:
        """From a file: `NAME KEY` or `KEY` a line; empty lines and those after # are passed over. RequestError if unusable."""
        try:
            lines = path.read_text().splitlines()
            if path.stat().st_mode & 0o022:
                log.warning("others may write to the file of API keys", extra={"file": str(path), "mend": f"chmod go-w {path}"})
        except (OSError, UnicodeDecodeError) as error:
            what = told(error) if isinstance(error, OSError) else f"{path}: {error}"
            raise RequestError(f"--api-key-file cannot be read: {what}") from error
        keys: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2 or len(words[-1]) < 8 or not words[-1].isascii():
                raise RequestError(f"{path}, line {number}: expected NAME KEY or KEY, a key of at least 8 ASCII characters")
            keys[words[-1]] = words[0] if len(words) == 2 else "key-" + _digest(words[0]).hex()[:8]
        if not keys:
            raise RequestError(f"{path} has no keys; write one a line, or serve without --api-key-file")
        return cls(keys)

    def owner(self, key: str) -> str | None:
        """Whose key it is; None for an unknown one."""
        digest, found = _digest(key), None
        for name, known in self._digests:  # all of them, always: time tells nothing
            if hmac.compare_digest(digest, known):
                found = name
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
