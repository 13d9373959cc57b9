"""The cache manager's books under a state machine, and what may be shared."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensormill.cache import Cache, Holding

P = 4


def make(pages: int = 40, window: int = 6, window_pages: int = 20, slots: int = 5, stateful: bool = False) -> Cache:
    return Cache({0: pages, window: window_pages}, page=P, slots=slots, stateful=stateful, snapshot_budget=3)


def run(cache: Cache, tokens: list[int], salt: str = "") -> Holding:
    h = cache.open(tokens, salt)
    assert cache.reserve(h, len(tokens))
    cache.commit(h, tokens, len(tokens))
    return h


def test_a_second_request_shares_whole_pages_and_leaves_one_token() -> None:
    cache = make()
    first = run(cache, list(range(12)))
    second = cache.open(list(range(12)))
    assert second.resumed == 8  # the last page is recomputed: its logits are wanted
    assert second.tables[0] == first.tables[0][:2]
    cache.check_integrity([first, second])


def test_tenants_never_share() -> None:
    cache = make()
    run(cache, list(range(12)), "a")
    assert cache.open(list(range(12)), "b").resumed == 0


def test_a_window_gives_back_and_resumes_only_where_its_rows_are() -> None:
    cache = make(window=6)
    h = run(cache, list(range(20)))
    assert h.tables[6][:3] == [0, 0, 0]  # tokens 0…11; index 20 sees 15…
    cache.close(h)
    warm = cache.open([*range(20), 99])
    assert warm.resumed == 20
    cache.close(warm)
    while cache.tree.evict(6):
        pass
    again = cache.open([*range(20), 7])
    assert again.resumed == 0 and cache.tree.match([*range(20), 7], "") is None


def test_of_a_windows_pages_the_last_are_kept_longest() -> None:
    """They are what the next turn needs; a beginning's are needed only by who turns off there."""
    cache = make(window=6)
    h = cache.open(list(range(40)))
    for length in range(P, 44, P):  # in chunks: a window's pages are given back on the way
        assert cache.reserve(h, length)
        cache.commit(h, list(range(40)), length)
    cache.close(h)
    for _ in range(8):  # of 10
        assert cache.tree.evict(6)
    assert cache.open([*range(40), 99]).resumed == 40


def test_states_resume_only_from_snapshots_within_budget() -> None:
    cache = make(stateful=True)
    h = run(cache, list(range(9)))
    assert cache.open([*range(8), 50]).resumed == 0
    assert h.node and cache.tree.keep_snapshot(h.node, "state", 2)
    held = cache.open([*range(8), 50])
    assert held.resumed == 8 and held.snapshot == "state"
    other = run(cache, [100 + i for i in range(9)])
    assert other.node and cache.tree.keep_snapshot(other.node, "other", 2)  # pushes the older one out
    assert h.node.snapshot is None
    assert not cache.tree.keep_snapshot(h.node, "huge", 4)


def test_equal_pages_computed_twice_become_one() -> None:
    cache = make()
    a, b = cache.open(list(range(8))), cache.open(list(range(8)))
    for h in (a, b):
        assert cache.reserve(h, 8)
    assert a.tables[0] != b.tables[0]
    for h in (a, b):
        cache.commit(h, list(range(8)), 8)
    assert a.tables[0] == b.tables[0]
    cache.check_integrity([a, b])


def test_no_room_takes_nothing() -> None:
    cache = make(pages=4)
    h = cache.open([1])
    assert not cache.reserve(h, 16)
    cache.check_integrity([h])
    assert cache.reserve(h, 12)


class Books(RuleBasedStateMachine):
    """Sequences open, grow, fork by prefix, and close, on too few pages."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = make(pages=14, window_pages=10, slots=4)
        self.live: list[tuple[Holding, list[int]]] = []

    @precondition(lambda self: self.cache.free_slots)
    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=24), salt=st.sampled_from("ab"))
    def open(self, tokens: list[int], salt: str) -> None:
        h = self.cache.open(tokens, salt)
        if self.cache.reserve(h, len(tokens)):
            self.cache.commit(h, tokens, len(tokens))
            self.live.append((h, tokens))
        else:
            self.cache.close(h)

    @precondition(lambda self: self.live)
    @rule(i=st.integers(0, 9), more=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def grow(self, i: int, more: list[int]) -> None:
        h, tokens = self.live[i % len(self.live)]
        if self.cache.reserve(h, len(tokens) + len(more)):
            tokens += more
            self.cache.commit(h, tokens, len(tokens))

    @precondition(lambda self: self.live)
    @rule(i=st.integers(0, 9))
    def close(self, i: int) -> None:
        h, _ = self.live.pop(i % len(self.live))
        self.cache.close(h)

    @rule(w=st.sampled_from([0, 6]))
    def evict(self, w: int) -> None:
        self.cache.tree.evict(w)

    @invariant()
    def books_agree(self) -> None:
        self.cache.check_integrity([h for h, _ in self.live])

    @invariant()
    def visible_rows_are_held(self) -> None:
        for h, tokens in self.live:
            pages = -(-len(tokens) // P)
            assert all(h.tables[0][:pages])
            first = max(0, len(tokens) - 6 + 1) // P
            assert all(h.tables[6][first:pages])


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None, derandomize=True)
TestBooks = Books.TestCase
