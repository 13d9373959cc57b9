"""`tensormill tokenize`: text to token ids, as the model would see it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tensormill.cli.settings import AsJson
from tensormill.errors import RequestError


def main(
    model: str,
    text: str | None = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"])] = None,
    special: bool = True,
    bos: bool = True,
    ids: Annotated[bool, Parameter(negative="")] = False,
    json_: AsJson = False,
    pre: str | None = None,
) -> int:
    """List the tokens of TEXT (without one: of --file or standard input): id and text, one a line.

    Parameters
    ----------
    model
        A .gguf file; only its vocabulary is read.
    text
        What to tokenize.
    file
        Tokenize this file, as UTF-8.
    special
        Read the names of control tokens in the text as those tokens.
    bos
        Add the tokens that the model wants at the beginning and end.
    ids
        Print only the ids, on one line.
    json_
        Print JSON: a list of {id, text}.
    pre
        Pre-tokenizer to use instead of the one the file names.
    """
    from tensormill.cli.listing import print_json
    from tensormill.cli.models import find
    from tensormill.gguf import GGUFFile
    from tensormill.tokenizer import Tokenizer

    source = _source(text, file)
    with GGUFFile(find(model)) as opened:
        tokenizer = Tokenizer.from_metadata(opened.metadata, pre=pre)
        tokens = tokenizer.encode(source, add_special=bos, parse_special=special)
    if ids:
        print(*tokens)
    elif json_:
        print_json([{"id": token, "text": _text(tokenizer.piece(token))} for token in tokens])
    else:
        for token in tokens:
            print(f"{token:>7}  {_text(tokenizer.piece(token))!r}")
    return 0


def _text(piece: bytes) -> str:
    """A token's bytes as text; part of a character is shown as \\xNN."""
    return piece.decode("utf-8", "backslashreplace")


def _source(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise RequestError("give the text or --file, not both")
    if file is not None:
        try:
            return file.read_bytes().decode("utf-8")
        except OSError as error:
            raise RequestError(f"cannot read {file}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise RequestError(f"{file} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    if text is None and sys.stdin.isatty():
        raise RequestError('there is no text: tensormill tokenize MODEL.gguf "TEXT", or --file F, or pipe one in')
    return sys.stdin.buffer.read().decode("utf-8", "replace") if text is None else text
