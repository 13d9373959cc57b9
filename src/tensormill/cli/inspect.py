"""`tensormill inspect`: metadata, tensors and sizes by type of a model file. Reads the header alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensormill.cli.settings import AsJson

if TYPE_CHECKING:
    from tensormill.gguf import GGUFFile, Metadata

_LONGEST = 100


def main(
    model: str | None = None,
    /,
    *,
    key: str | None = None,
    tensors: bool = True,
    json_: AsJson = False,
    full: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Show what is in MODEL (without one: the demo model).

    Parameters
    ----------
    model
        A .gguf file; any part of a split one.
    key
        Print only the value of this metadata key, whole.
    tensors
        List the tensors.
    json_
        Print JSON.
    full
        Do not shorten long values.
    """
    from tensormill.cli.listing import print_json
    from tensormill.cli.models import find
    from tensormill.gguf import GGUFFile

    with GGUFFile(find(model)) as file:
        if key is not None:
            return _one(file.metadata, key, json_)
        if json_:
            print_json(_as_json(file, tensors, full))
        else:
            print(_as_text(file, tensors, full))
    return 0


def _one(metadata: Metadata, key: str, json_: bool) -> int:
    from difflib import get_close_matches

    from tensormill.cli.listing import print_json
    from tensormill.errors import RequestError

    if key not in metadata:
        near = get_close_matches(key, metadata, 3)
        raise RequestError(f"there is no key {key!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))
    value = _plain(metadata[key])
    print_json(value) if json_ or not isinstance(value, str) else print(value)
    return 0


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _shown(metadata: Metadata, key: str, full: bool) -> str:
    """A value on one line; of an array the first few items, without decoding the rest where it is long."""
    field = metadata.field(key)
    value = _plain(metadata[key])
    if isinstance(value, list) and not full:
        head = ", ".join(map(repr, value[:6]))
        value = f"[{head}{', …' if len(value) > 6 else ''}]"
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    text = text if full or len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
    return text if field.count is None else f"{field}: {text}"


def _types(file: GGUFFile) -> list[dict[str, Any]]:
    """Sizes by tensor type, largest first."""
    found: dict[str, dict[str, Any]] = {}
    for info in file.tensors.values():
        entry = found.setdefault(
            info.type.name,
            {"type": info.type.name, "tensors": 0, "elements": 0, "bytes": 0, "bits_per_weight": info.type.bits_per_weight},
        )
        entry["tensors"] += 1
        entry["elements"] += _elements(info.shape)
        entry["bytes"] += info.nbytes
    return sorted(found.values(), key=lambda entry: -entry["bytes"])


def _elements(shape: tuple[int, ...]) -> int:
    import math

    return math.prod(shape)


def _as_json(file: GGUFFile, tensors: bool, full: bool) -> dict[str, Any]:
    metadata = {}
    for key in file.metadata:
        value = _plain(file.metadata[key])
        long = isinstance(value, list) and len(value) > 64 and not full
        metadata[key] = {"array": str(file.metadata.field(key)), "first": value[:6]} if long else value
    listed = [
        {"name": i.name, "type": i.type.name, "shape": list(i.shape), "bytes": i.nbytes, "file": i.file, "offset": i.offset}
        for i in file.tensors.values()
    ]
    return {
        "files": [{"path": str(path), "bytes": size} for path, size in zip(file.paths, file.sizes, strict=True)],
        "version": file.version,
        "alignment": file.alignment,
        "metadata": metadata,
        "types": _types(file),
        **({"tensors": listed} if tensors else {}),
    }


def _as_text(file: GGUFFile, tensors: bool, full: bool) -> str:
    from tensormill.cli.listing import size, table

    parts = [f"{path}: GGUF version {file.version}, {size(b)}" for path, b in zip(file.paths, file.sizes, strict=True)]
    parts += ["", table((key, _shown(file.metadata, key, full)) for key in file.metadata)]
    if tensors:
        listed = ((i.name, i.type.name, "×".join(map(str, i.shape)), size(i.nbytes)) for i in file.tensors.values())
        parts += ["", table([("tensor", "type", "shape (rows first)", "size"), *listed], right=[3])]
    types = _types(file)
    rows = [(t["type"], t["tensors"], t["elements"], f"{t['bits_per_weight']:.4g}", size(t["bytes"])) for t in types]
    elements, total = sum(t["elements"] for t in types), sum(t["bytes"] for t in types)
    mean = f"{8 * total / elements:.4g}" if elements else "0"
    rows.append(("all", len(file.tensors), elements, mean, size(total)))
    head = ("type", "tensors", "weights", "bits each", "size")
    return "\n".join([*parts, "", table([head, *rows], right=[1, 2, 3, 4])])
