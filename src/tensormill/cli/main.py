"""The command `tensormill`: finds the verb, runs its module, turns errors into one line and an exit code.

Nothing heavy is imported here, so that `--help` is instant: 0 is fine, 1 failed, 2 wrong usage. One module a verb;
`settings.py` has the flags that verbs share.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from tensormill import __version__
from tensormill.errors import RequestError, TensorMillError, told

VERBS = {
    "run": "answer one prompt",
    "chat": "talk with a model",
    "inspect": "what is in a model file: metadata, tensors, sizes by type",
    "trace": "the program that a model file becomes",
    "tokenize": "text to token ids",
    "logits": "logits of given tokens, into a .npy file",
    "serve": "answer over HTTP: OpenAI's API and its kin",
    "bench": "speed of prefill and decode",
    "eval": "perplexity of a text, and divergence from a better copy",
    "doctor": "what this machine offers, and what is missing",
}
_SHORT = {"-t": "--threads", "-c": "--ctx"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's); the exit code."""
    _mend_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [_SHORT.get(word, word) for word in words if word != "--debug"]
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except TensorMillError as error:
        if debug:
            raise
        print(f"tensormill: {error}", file=sys.stderr)
        return 2 if isinstance(error, RequestError) else 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush says nothing
        return 1
    except OSError as error:
        if debug:
            raise
        print(f"tensormill: {told(error)}", file=sys.stderr)
        return 1
    return code


def _mend_streams() -> None:
    """A stream that was closed (`>&-`) reads or writes nothing; characters that a terminal lacks are shown as \\uNNNN."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (for the life of the process)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        print(_help())
    elif words[0] == "--version":
        print(__version__)
    elif words[0] not in VERBS:
        return _unknown(words[0])
    else:
        return _call(words[0], words[1:])
    return 0


def _call(verb: str, words: list[str]) -> int:
    from importlib import import_module

    if not any("reference" in word for word in words):
        # Only the reference backend multiplies with NumPy's BLAS, which starts threads when it is imported, and they spin.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # what is imported stays; to look for garbage in it takes a tenth of the start
    from tensormill.cli.settings import call

    function = import_module(f"tensormill.cli.{verb}").main
    gc.enable()
    return call(verb, function, words)


def _help() -> str:
    verbs = "\n".join(f"  {verb:<10} {about}" for verb, about in VERBS.items())
    return (
        f"Usage: tensormill COMMAND [OPTIONS]\n\nRuns GGUF language models on this machine.\n\n{verbs}\n\n"
        "`tensormill COMMAND --help` lists its options; -t N is --threads N, -c N is --ctx N.\n"
        "--version prints the version; --debug shows the traceback of an error.\n"
        "Answers and listings go to stdout, progress to stderr; listings take --json.\n"
        "Exit codes: 0 fine, 1 failed, 2 wrong usage."
    )


def _unknown(word: str) -> int:
    from difflib import get_close_matches

    near = get_close_matches(word, VERBS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(VERBS)}"
    print(f"tensormill: there is no command {word!r}; {hint}", file=sys.stderr)
    return 2


def leave() -> NoReturn:
    """The program: `main`, and out at once. To take a model apart object by object would take a tenth as long as its start."""
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a pipe whose reader is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave()
