"""Writes the golden ids of the tokenizer tests with llama.cpp's own tokenizer.

    TENSORMILL_ORACLE=oracle.py PYTHONPATH=src:tests python tests/make_tokenizer_goldens.py

The oracle is a Python file with a class `Oracle(path, vocab_only=True)` around libllama (llama.cpp b11739 at the last
run) whose `tokenize(text, bos=, special=)` gives ids. Needed only when rules or texts change.
"""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fetch_vocabs
import get_models
from tensormill.gguf import GGUFWriter
from tensormill.tokenizer.pre import FAMILIES
from tokenizer_corpus import TEXTS
from tokenizer_goldens import FOLDER, digests
from tokenizer_synthetic import ENDINGS, OTHERS, Keys, byte_pairs, endings


@contextmanager
def oracle(path: Path) -> Iterator[Any]:
    """libllama with this file's vocabulary."""
    spec = importlib.util.spec_from_file_location("oracle", os.environ["TENSORMILL_ORACLE"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    opened = module.Oracle(str(path), vocab_only=True)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def written(keys: Keys) -> Iterator[Any]:
    """The oracle on a file with these keys."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.gguf"
        writer = GGUFWriter(path)
        for key, value in keys.items():
            writer.add(key, value)
        writer.write()
        with oracle(path) as opened:
            yield opened


def encode(o: Any, text: str, special: bool) -> list[int]:
    """Plain, or with BOS and special tokens."""
    ids: list[int] = o.tokenize(text, bos=special, special=special)
    return ids


def stops(o: Any) -> list[int]:
    """Ids at which llama.cpp ends an answer."""
    return [i for i in range(o.n_vocab) if o.lib.llama_vocab_is_eog(o.vocab, i)]


def synthetic() -> None:
    """All families and kinds in one file, the endings in another."""
    found = {}
    for name, keys in [(f"pre:{p}", lambda p=p: byte_pairs(p)) for p in FAMILIES] + list(OTHERS.items()):
        with written(keys()) as o:
            found[name] = digests(lambda text, special, o=o: encode(o, text, special))
        print(name, flush=True)
    np.savez_compressed(FOLDER / "synthetic.npz", **found)
    ends = {}
    for name in ENDINGS:
        keys = endings(name)
        with written(keys) as o:
            ends[name] = [keys["tokenizer.ggml.tokens"][i] for i in stops(o)]  # type: ignore[index]
    (FOLDER / "endings.json").write_text(json.dumps(ends, indent=1, ensure_ascii=False) + "\n")


def real(path: Path) -> None:
    """Ids, digests and stops of a real vocabulary."""
    with oracle(path) as o:
        ids = [encode(o, text, True) for text in TEXTS]
        crc = digests(lambda text, special: encode(o, text, special))
        flat = np.array([i for one in ids for i in one], np.int32)
        ends = np.cumsum([len(one) for one in ids]).astype(np.int32)
        np.savez_compressed(FOLDER / f"{path.stem}.npz", crc=crc, ids=flat, ends=ends, stops=np.array(stops(o), np.int32))
    print(path.stem, flush=True)


def main() -> None:
    """Everything that can be had on this machine."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    synthetic()
    for folder in (fetch_vocabs.DEFAULT_DIR, get_models.directory()):
        for path in sorted(Path(folder).glob("*.gguf")):
            real(path)


if __name__ == "__main__":
    main()
