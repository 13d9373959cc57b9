"""The disk tier: what one process computed the next need not, and nothing that befalls the files is ever seen in an answer."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.tiny_engine import answers, ask, load, told, write
from models.tiny import tokens as some_tokens
from tensormill.cache import Files
from tensormill.cache.behind import Behind
from tensormill.engine import Engine
from tensormill.engine.crank import Crank
from tensormill.engine.messages import Generate

VARIANTS = ("llama", "gemma3", "qwen35", "deepseek2-groups-yarn")
TEXT = [int(t) for t in some_tokens("llama", 200)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    for variant in VARIANTS:
        write(variant, folder / variant)
    write("llama", folder / "other", noise=1e-3)
    return folder


def answered(engine: Engine, request: Generate) -> tuple[object, int]:
    """What a request was answered, and how many tokens of its prompt were not computed."""
    (outputs,) = answers(Crank(engine), [request]).values()
    assert outputs[-1].usage is not None
    return told(outputs), outputs[-1].usage.cached


def once(models: Path, disk: Path, request: Generate, variant: str = "llama", **config: object) -> tuple[object, int]:
    """The same on an engine of its own, as a process leaves it that is killed a while later: never closed."""
    engine = load(models / variant, **{"backend": "cpu", "threads": 1, "kv_disk": str(disk)} | config)
    found = answered(engine, request)
    engine.cache.settle()
    return found


def files(disk: Path) -> list[Path]:
    return sorted(disk.iterdir())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_later_process_goes_on_where_the_first_was(models: Path, tmp_path: Path, variant: str) -> None:
    request = ask("a", TEXT[:150])
    first, cached = once(models, tmp_path, request, variant)
    assert cached == 0
    assert once(models, tmp_path, request, variant) == (first, 128)
    longer = ask("b", TEXT[:128] + TEXT[60:90])
    plain, _ = answered(load(models / variant, backend="cpu", threads=1), longer)
    assert once(models, tmp_path, longer, variant) == (plain, 128)


@pytest.mark.parametrize("kv_type", ["f32", "bf16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_reference_too(models: Path, tmp_path: Path, variant: str, kv_type: str) -> None:
    """Its sums depend on the size of a step, so only what it chooses is compared."""
    request = ask("a", TEXT[:150])
    (first, *_), cached = once(models, tmp_path, request, variant, backend="reference", kv_type=kv_type)
    (again, *_), resumed = once(models, tmp_path, request, variant, backend="reference", kv_type=kv_type)
    assert again == first and (cached, resumed) == (0, 128)


def test_sessions_too_and_what_close_writes(models: Path, tmp_path: Path) -> None:
    with load(models / "qwen35", kv_disk=str(tmp_path)) as engine:
        engine.session().feed(TEXT[:150])  # not ended
        assert not files(tmp_path)
    with load(models / "qwen35", kv_disk=str(tmp_path)) as engine:
        assert engine.session().begin(TEXT[:150]) == 128


@pytest.mark.parametrize("kv_type", ["f16", "bf16"])
def test_another_model_type_or_tenant_finds_nothing(models: Path, tmp_path: Path, kv_type: str) -> None:
    mine = ask("a", TEXT[:150])
    theirs = Generate("a", mine.tokens, mine.sampling, salt="them", logprobs=2)
    first, _ = once(models, tmp_path, mine)
    assert once(models, tmp_path, theirs) == (first, 0)
    assert once(models, tmp_path, theirs) == (first, 128)
    assert once(models, tmp_path, mine, "other")[1] == 0
    assert once(models, tmp_path, mine, kv_type=kv_type)[1] == 0
    assert once(models, tmp_path, mine, context=512)[1] == 0  # rotations may depend on it
    assert once(models, tmp_path, mine) == (first, 128)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit": flip,
    "the end": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "all of it": lambda p: p.write_bytes(b""),
    "more than there was": lambda p: p.write_bytes(p.read_bytes() + b"x"),
    "the file": Path.unlink,
    "a folder": lambda p: (p.unlink(), p.mkdir()),
}


DAMAGED = [*(("llama", d) for d in DAMAGE), ("gemma3", "a bit"), ("qwen35", "a folder")]


@pytest.mark.parametrize(("variant", "damage"), DAMAGED)
def test_damaged_files_are_a_miss(models: Path, tmp_path: Path, variant: str, damage: str) -> None:
    request = ask("a", TEXT[:150])
    first, _ = once(models, tmp_path, request, variant)
    for path in files(tmp_path):
        kept = path.read_bytes()
        DAMAGE[damage](path)
        again, cached = once(models, tmp_path, request, variant)
        assert again == first
        assert cached < 128 or not path.name.endswith("-0.kv")
        if path.is_dir():
            path.rmdir()
        path.write_bytes(kept)
    for path in files(tmp_path):
        DAMAGE[damage](path)
    assert once(models, tmp_path, request, variant) == (first, 0)


def test_files_that_changed_places_are_a_miss(models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    request = ask("a", TEXT[:150])
    first, _ = once(models, tmp_path, request)
    one, two, *_ = files(tmp_path)
    a, b = one.read_bytes(), two.read_bytes()
    one.write_bytes(b), two.write_bytes(a)
    assert once(models, tmp_path, request) == (first, 0)
    assert "is not used" in caplog.text


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a full disk, writing beyond `size` bytes fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_harmless(models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    request = ask("a", TEXT[:150])
    with largest_file(10_000):
        first, _ = once(models, tmp_path, request)
    assert not files(tmp_path)  # no half a file either
    assert "not kept for now: File too large" in caplog.text
    assert f"{tmp_path}/" in caplog.text and ".kv cannot be written" in caplog.text  # it says which disk is full
    assert once(models, tmp_path, request) == (first, 0)
    assert once(models, tmp_path, request) == (first, 128)


def test_a_folder_that_cannot_be_is_harmless(models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    request = ask("a", TEXT[:150])
    first, _ = once(models, tmp_path / "file", request)
    assert "cannot be used" in caplog.text
    assert once(models, tmp_path / "new" / "folder", request) == (first, 0)


@pytest.mark.parametrize("variant", ["llama", "gemma3", "qwen35"])
def test_what_left_memory_comes_back_from_disk(models: Path, tmp_path: Path, variant: str) -> None:
    """A pool of hardly more than one context: prompts push each other out, in one process."""
    prompts = [ask(f"{i}", [7 + i, *TEXT[:149]]) for i in range(5)]
    plain = load(models / variant, backend="cpu", threads=1, sequences=1)
    truth = [answered(plain, p)[0] for p in prompts]
    engine = load(models / variant, backend="cpu", threads=1, sequences=1, kv_disk=str(tmp_path))
    for turn in range(2):
        for prompt, want in zip(prompts, truth, strict=True):
            assert answered(engine, prompt) == (want, 128 * turn)


def test_the_folder_stays_within_its_size(models: Path, tmp_path: Path) -> None:
    engine = load(models / "llama", backend="cpu", threads=1, kv_disk=str(tmp_path), kv_disk_size="300K")
    for i in range(6):
        answered(engine, ask(f"{i}", [7 + i, *TEXT[:149]]))
        engine.cache.settle()
        assert sum(p.stat().st_size for p in files(tmp_path)) <= 300 << 10
    newest, oldest = ([7 + i, *TEXT[:149]] for i in (5, 0))
    assert once(models, tmp_path, ask("a", newest))[1] == 128
    assert once(models, tmp_path, ask("a", oldest))[1] == 0


def test_a_slow_disk_holds_nobody_up(models: Path, tmp_path: Path) -> None:
    """The first file is a pipe that nobody reads, so its writer waits; what waits behind it can be had all the same."""
    request = ask("a", TEXT[:150])
    truth, _ = once(models, tmp_path / "order", request)
    first = min((p.stat().st_mtime_ns, p.name) for p in files(tmp_path / "order"))[1]  # written when the request ends
    pipe = tmp_path / "slow" / f"{first}.{os.getpid()}.part"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    with load(models / "llama", backend="cpu", threads=1, sequences=1, kv_disk=str(pipe.parent)) as engine:
        assert answered(engine, request) == (truth, 0)
        for i in range(5):  # they push the first out of memory
            answered(engine, ask(f"{i}", [7 + i, *TEXT[:149]]))
        assert [p.name for p in files(pipe.parent)] == [pipe.name]
        assert engine.cache.tree.match(request.tokens, "") is None
        assert answered(engine, request) == (truth, 128)
        with pipe.open("rb") as reader:
            assert len(reader.read()) > 1000
        engine.cache.settle()
        assert len(files(pipe.parent)) == 12
        (pipe.parent / first).unlink()  # the pipe


def test_what_waits_for_the_disk_is_bounded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"a.kv.{os.getpid()}.part")
    behind = Behind(Files(tmp_path, 1 << 20), most=250)
    for name in "abcd":
        behind.now(f"{name}.kv", b"", lambda: bytes(100))
    assert [f"{n}.kv" in behind for n in "abcd"] == [True, True, True, False]
    assert behind.get("b.kv", b"") == bytes(100) and behind.get("b.kv", b"other") is None
    behind.settle(0.05)
    (tmp_path / f"a.kv.{os.getpid()}.part").read_bytes()
    behind.settle()
    assert [p.name for p in files(tmp_path)] == ["a.kv", "b.kv", "c.kv"]
    (tmp_path / "a.kv").unlink()
    assert behind.get("c.kv", b"") == bytes(100)


def test_files_give_up_what_was_not_used_for_longest(tmp_path: Path) -> None:
    made = Files(tmp_path, 4 * 124)
    for name in ("a.kv", "b.kv", "c.kv", "d.kv"):
        assert made.put(name, b"", bytes(100))
    made.touch("a.kv")
    assert made.put("e.kv", b"p", b"body")
    assert [p.name for p in files(tmp_path)] == ["a.kv", "c.kv", "d.kv", "e.kv"]
    later = Files(tmp_path, 3 * 124)
    assert [p.name for p in files(tmp_path)] == ["a.kv", "d.kv", "e.kv"]
    assert later.get("e.kv", b"p") == b"body" and later.get("a.kv", b"") == bytes(100)
    assert later.get("e.kv", b"q") is None and later.get("e.kv", b"p") is None  # the wrong proof: gone
    assert not later.put("f.kv", b"", bytes(1000)) and len(later) == 2


def test_what_is_no_plain_file_is_a_miss(tmp_path: Path) -> None:
    made = Files(tmp_path, 1 << 20)
    os.mkfifo(tmp_path / "pipe.kv")
    (tmp_path / "link.kv").symlink_to("/dev/zero")
    (tmp_path / "large.kv").write_bytes(bytes(1 << 20 | 1))
    assert [made.get(f"{name}.kv", b"") for name in ("pipe", "link", "large")] == [None] * 3
    assert "pipe.kv" not in made and "link.kv" not in made
    assert len(Files(tmp_path, 1 << 20)) == 0
    assert made.put("mine.kv", b"", b"body") and (tmp_path / "mine.kv").stat().st_mode & 0o777 == 0o600
