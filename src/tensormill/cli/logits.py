"""`tensormill logits`: the logits that follow each of the given tokens. Needs no tokenizer in the file."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tensormill.cli.settings import ModelFlags
from tensormill.config import EngineConfig
from tensormill.errors import RequestError

if TYPE_CHECKING:
    import numpy as np


def main(
    model: str,
    /,
    *,
    out: Path,
    tokens: str | None = None,
    tokens_file: Path | None = None,
    engine: ModelFlags = EngineConfig(),  # noqa: B008  (frozen)
) -> int:
    """Write the logits of MODEL after each token, float32 [tokens, vocabulary], as a .npy file.

    Parameters
    ----------
    model
        A .gguf file.
    out
        The .npy file to write.
    tokens
        Token ids: 1,2,3
    tokens_file
        A .npy file of token ids, one dimension.
    """
    import numpy as np

    from tensormill.cli.models import load

    ids = token_ids(tokens, tokens_file)
    _check_writable(out)
    rows = min(engine.chunk, len(ids))
    config = dataclasses.replace(engine, context=engine.context or len(ids), rows=max(engine.rows, rows))
    with load(model, config) as loaded:
        session = loaded.session()
        result = session.logits(ids, engine.chunk)
    with out.open("wb") as file:
        np.save(file, np.ascontiguousarray(result, np.float32))
    print(f"{out}: float32 {list(result.shape)}", file=sys.stderr)
    return 0


def _check_writable(out: Path) -> None:
    """Fail before the work rather than after."""
    try:
        out.open("ab").close()
    except OSError as error:
        raise RequestError(f"cannot write {out}: {error.strerror}") from None


def token_ids(tokens: str | None, file: Path | None) -> list[int]:
    """Token ids from `1,2,3` or from a .npy file, of which one is given; RequestError if they are no ids."""
    if (tokens is None) == (file is None):
        raise RequestError("give the tokens as --tokens 1,2,3 or as --tokens-file F.npy")
    if file is not None:
        found = _load(file)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise RequestError(f"{file} must hold one row of integers, not {found.dtype} {list(found.shape)}")
        ids = [int(token) for token in found]
    else:
        try:
            ids = [int(token) for token in (tokens or "").replace(",", " ").split()]
        except ValueError:
            raise RequestError(f"--tokens must be numbers with commas between them, not {tokens!r}") from None
    if not ids:
        raise RequestError("there are no tokens")
    return ids


def _load(file: Path) -> np.ndarray:
    import numpy as np

    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror or error}") from None
    except (ValueError, EOFError):  # numpy's words are about pickles
        raise RequestError(f"cannot read {file} as a .npy file: it is of another kind, or damaged") from None
