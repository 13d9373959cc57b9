"""How large the caches become: what was asked, what there is room for, and refusals that name the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.tiny_engine import answers, ask, load, write
from tensormill.backends import cpu
from tensormill.config import EngineConfig, bytes_of
from tensormill.engine.crank import Crank
from tensormill.engine.memory import free_memory
from tensormill.engine.sizing import Sizes, cache_bytes, limits
from tensormill.errors import BackendError, RequestError
from tensormill.program import Limits, WeightSource

SIZES = Sizes(sequences=4, context=1000, chunk=64)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tiny")
    return {v: write(v, folder / v) for v in ("llama", "gemma3", "qwen35")}


@pytest.mark.parametrize("variant", ["llama", "gemma3", "qwen35"])
def test_the_pool_takes_what_memory_there_is_and_no_more(tiny: dict[str, Path], variant: str) -> None:
    with load(tiny[variant]) as engine:
        made = engine.program

    def size(found: Limits) -> int:
        return cache_bytes(made, dict(found.pages), found.page, "f16", found.slots, found.drafts)

    full, least = limits(made, SIZES, "f16"), limits(made, replace(SIZES, tokens=1), "f16")
    assert full.pages[0] == 63 + 4 + 1 and least.pages[0] == 16 + 4 + 1
    seen = set()
    for memory in range(size(least), size(full) + 1, 997):
        found = limits(made, replace(SIZES, memory=memory), "f16")
        assert size(least) <= size(found) <= memory
        more = limits(made, replace(SIZES, tokens=(found.pages[0] - 4) * 64), "f16")  # a page more
        assert found.pages == full.pages or size(more) > memory
        seen.add(found.pages[0])
    assert len(seen) > 10
    with pytest.raises(RequestError, match=r"1000 tokens as f16 take .*room for .*lower --ctx to \d+, keep .*--kv-memory"):
        limits(made, replace(SIZES, memory=size(least) - 1), "f16")


def test_what_a_refusal_advises_is_taken(tiny: dict[str, Path]) -> None:
    with pytest.raises(RequestError, match="lower --ctx to") as refused:
        load(tiny["llama"], kv_memory="400K", context=512)
    advised = int(str(refused.value).split("--ctx to ")[1].split(",")[0])
    load(tiny["llama"], kv_memory="400K", context=advised).close()
    with pytest.raises(RequestError, match="--ctx"):
        load(tiny["llama"], kv_memory="400K", context=advised + 1)
    with pytest.raises(RequestError, match="--kv-tokens"):
        load(tiny["llama"], kv_memory="400K", context=64, kv_tokens=5000)


def test_an_engine_with_little_memory_answers_all_the_same(tiny: dict[str, Path]) -> None:
    requests = [ask(f"{i}", [3 + i] * 120) for i in range(6)]
    with load(tiny["llama"]) as roomy, load(tiny["llama"], kv_memory="600K") as tight:
        assert tight.limits.pages[0] < roomy.limits.pages[0]
        a, b = (answers(Crank(engine), requests) for engine in (roomy, tight))
    assert {i: [o.tokens for o in outs] for i, outs in a.items()} == {i: [o.tokens for o in outs] for i, outs in b.items()}


def test_sizes_in_words() -> None:
    assert [bytes_of(t, "n") for t in ("1000", "4k", "1.5G", "2GiB", "3 MB")] == [1000, 4096, 3 << 29, 2 << 30, 3 << 20]
    for wrong in ("", "4X", "-1", "1e3", "G"):
        with pytest.raises(RequestError, match="kv-memory must be a size such as 512M or 4G"):
            EngineConfig(kv_memory=wrong)


def test_the_system_tells_what_is_free() -> None:
    found = free_memory()
    assert found is None or 1 << 20 < found < 1 << 50


@pytest.mark.parametrize("variant", ["llama", "gemma3", "qwen35"])
def test_the_sum_of_all_that_will_be_allocated_is_checked_before_weights_are_laid_out(
    tiny: dict[str, Path], variant: str
) -> None:
    with load(tiny[variant], backend="cpu") as engine:
        sizes, source = engine.executable.bytes, WeightSource(engine.file)
        assert engine.limits.memory == pytest.approx(free_memory(), rel=0.2)
        laid_out: list[int] = []

        def compiled(memory: int) -> dict[str, int]:
            limits = replace(engine.limits, memory=memory)
            return cpu.compile(engine.program, source, limits, threads=1, progress=lambda done, _: laid_out.append(done)).bytes

        total = sum(sizes.values())
        assert compiled(total + (1 << 20)) == sizes and laid_out
        laid_out.clear()
        with pytest.raises(BackendError, match=r"weights take .* states .* in flight .* in all, and .*free; lower --ctx or"):
            compiled(total - 1)
        with pytest.raises(BackendError, match="choose a smaller model"):
            compiled(sizes["weights"])
        assert not laid_out


def test_a_draft_model_gets_what_the_model_leaves(tiny: dict[str, Path]) -> None:
    with load(tiny["llama"], backend="cpu", drafts=2, draft_model=str(tiny["qwen35"])) as engine:
        taken = sum(engine.executable.bytes.values())
        engine.limits = replace(engine.limits, memory=taken + 1000)
        with pytest.raises(BackendError, match=r"1000 B of memory are free"):
            _ = engine.proposer


def test_weights_that_do_not_fit_are_what_is_said(tiny: dict[str, Path]) -> None:
    with load(tiny["llama"]) as engine:
        sizes = replace(SIZES, memory=0, free=5 << 30, weights=6 << 30)
        with pytest.raises(RequestError, match=r"the weights take 6 GiB, and 5 GiB of memory are free: choose a smaller model"):
            limits(engine.program, sizes, "f16")
        with pytest.raises(RequestError, match=r"room for 100 B beside weights of 3 GiB: lower --sequences"):
            limits(engine.program, replace(sizes, memory=100, weights=3 << 30), "f16")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_heads_that_are_no_whole_blocks_are_refused_before_they_are_counted(tiny: dict[str, Path], backend: str) -> None:
    with pytest.raises(BackendError, match=r"heads of 16 numbers, .*--kv-type f16"):
        load(tiny["llama"], backend=backend, kv_type="q8_0")
