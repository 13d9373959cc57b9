"""The scheduler under a state machine: no leak, no starvation, no lost request; and its promises one by one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensormill.cache import Cache
from tensormill.scheduler import Scheduler, Sequence, Work
from tensormill.scheduler.pace import Pace

P = 4


def make(pages: int = 64, *, budget: int = 16, slots: int = 9, stateful: bool = False) -> Scheduler:
    cache = Cache({0: pages, 6: pages}, page=P, slots=slots, stateful=stateful)
    return Scheduler(cache, budget=budget, stateful=stateful)


def sequence(name: str, prompt: list[int], **more: object) -> Sequence:
    return Sequence(name, list(prompt), len(prompt), **more)  # type: ignore[arg-type]


def finish(s: Scheduler, works: list[Work], token: int = 7) -> None:
    for w in works:
        s.commit(w, [token] if w.wants else [])


def test_decoders_go_first_and_prompts_share_the_rest() -> None:
    s = make(budget=10)
    a, b = sequence("a", [1, 2]), sequence("b", list(range(20)))
    s.add(a)
    finish(s, s.plan())
    s.add(b)
    works = s.plan()
    assert [(w.sequence.id, len(w.tokens), w.wants) for w in works] == [("a", 1, True), ("b", 9, False)]
    finish(s, works)
    assert [(w.sequence.id, len(w.tokens), w.wants) for w in s.plan()] == [("a", 1, True), ("b", 9, False)]


def test_drafts_are_verified_and_only_certain_tokens_stay() -> None:
    s = make()
    a = sequence("a", [1, 2])
    s.add(a)
    finish(s, s.plan())
    a.drafts = [8, 9, 10]
    (work,) = s.plan()
    assert work.tokens == [7, 8, 9, 10] and work.sure == 1
    s.commit(work, [8, 9, 11])  # two drafts were right, the third is replaced
    assert a.tokens == [1, 2, 7, 8, 9, 11] and a.past == 5
    assert a.decoding


def test_priority_then_fairness_then_arrival() -> None:
    s = make(budget=4, slots=2)
    greedy = [sequence(f"g{i}", [i] * 4, key="greedy") for i in range(3)]
    late = sequence("late", [9] * 4, key="other")
    vip = sequence("vip", [8] * 4, key="greedy", priority=1)
    for x in (*greedy, late, vip):
        s.add(x)
    order = []
    for _ in range(5):
        (work,) = s.plan()
        order.append(work.sequence.id)
        finish(s, [work])
        s.remove(work.sequence)
    assert order == ["vip", "late", "g0", "g1", "g2"]


def test_the_last_in_order_is_preempted_and_resumes_from_the_tree() -> None:
    s = make(pages=8, budget=12)
    a, b = sequence("a", [1] * 10), sequence("b", [2] * 9)
    s.add(a)
    finish(s, s.plan())
    s.add(b)
    for _ in range(30):
        finish(s, s.plan())
        s.check_integrity()
        if b.preempted:
            break
    assert b.preempted and not a.preempted
    s.remove(a)
    works = s.plan()
    assert works[0].sequence is b


def test_a_stateful_chunk_ends_at_the_last_page_border() -> None:
    s = make(stateful=True)
    s.add(sequence("a", [1] * 10))
    (work,) = s.plan()
    assert len(work.tokens) == 8 and work.snapshot and not work.wants
    s.commit(work, [])
    (work,) = s.plan()
    assert len(work.tokens) == 2 and work.wants and not work.snapshot


def kept(s: Scheduler, prompt: list[int], **more: object) -> list[int]:
    """Run a prompt alone; where its states were kept, as engines do."""
    one, found = sequence("x", prompt, **more), []
    s.add(one)
    while not one.decoding:
        for w in s.plan():
            s.commit(w, [7] if w.wants else [])
            if w.snapshot:
                assert one.holding is not None
                s.cache.keep_snapshot(one.holding, "states", 1, w.snapshot)
                found.append(one.past)
    s.remove(one)
    return found


def test_states_are_kept_where_others_may_turn_off() -> None:
    s = make(pages=400, budget=64, stateful=True)
    assert kept(s, [1] * 30, borders={14}) == [12, 28]  # where its first turn ends; before its last token
    assert kept(s, [*[1] * 22, *[2] * 9]) == [20, 28]  # where it turns off: the next who does so resumes there
    third = sequence("third", [*[1] * 22, *[3] * 9])
    s.add(third)
    s.plan()
    assert third.reused == 20


def test_states_on_the_way_are_kept_further_and_further_apart() -> None:
    cache = Cache({0: 999}, page=P, slots=2, stateful=True, snapshot_budget=16)
    s = Scheduler(cache, budget=16, stateful=True)
    found = kept(s, list(range(800)))
    assert found == sorted(found) and found[0] == 32 and found[-1] == 796
    left = sorted(n.depth * P for n in cache.tree.snapshots)
    assert len(left) <= 5 and left[-1] == 796  # a quarter of the budget, and the end
    assert all(b - a >= 64 for a, b in pairwise(left[:-1]))
    fourth = sequence("fourth", [*range(700), *[5] * 50])
    s.add(fourth)
    s.plan()
    assert 350 <= fourth.reused <= 700


def test_who_comes_together_resumes_where_they_part() -> None:
    s = make(pages=400, budget=16, stateful=True)
    a, b = (sequence(name, [*[1] * 30, *[ord(name)] * 30]) for name in "ab")
    s.add(a)
    s.add(b)
    while b.holding is None:
        for w in s.plan():
            s.commit(w, [])
            if w.snapshot and w.sequence.holding:
                s.cache.keep_snapshot(w.sequence.holding, "states", 1, w.snapshot)
    assert b.reused == 28


def test_a_shared_beginning_is_computed_once() -> None:
    s = make(budget=8)
    for name in "abc":
        s.add(sequence(name, [1] * 12 + [ord(name)]))
    works = s.plan()
    assert [w.sequence.id for w in works] == ["a"]  # the others wait for its pages
    finish(s, works)
    works = s.plan()
    assert [w.sequence.id for w in works] == ["a"]
    finish(s, works)
    works = s.plan()
    assert [(w.sequence.id, len(w.tokens)) for w in works] == [("a", 1), ("b", 1), ("c", 1)]
    assert all(w.sequence.reused == 12 for w in works[1:])


def seconds(decoding: int, prompts: int) -> float:
    """What steps take on a machine that the next test makes up: 20 ms, and a millisecond a token."""
    return 0.02 + 0.001 * (decoding + prompts)


def test_who_decodes_waits_a_tenth_of_a_second_for_prompts_at_most() -> None:
    s = make(pages=4000, budget=512)
    for i in range(4):
        s.add(sequence(f"d{i}", [i] * 9))
    most = 0.0
    for turn in range(60):
        if turn in (4, 8):
            s.add(sequence(f"p{turn}", [90 + turn] * 6000))
        works = s.plan()
        decoding = sum(len(w.tokens) for w in works if w.sequence.decoding)
        prompts = sum(len(w.tokens) for w in works) - decoding
        took = seconds(decoding, prompts)
        most = max(most, took) if turn > 9 else 0.0  # until then it learns
        assert not prompts or prompts >= 16
        s.pace.stepped(decoding, prompts, 50.0 if turn == 30 else took)  # the machine was busy for a while
        finish(s, works)
    assert 0.08 < most <= 0.1
    for i in range(4):
        s.remove(next(x for x in s.running if x.id == f"d{i}"))
    s.plan()
    assert sum(len(w.tokens) for w in s.plan()) == 512  # nobody waits


def test_prompts_get_as_much_time_as_slow_decoding() -> None:
    pace = Pace()
    assert pace.room() > 100_000  # nothing is known
    pace.stepped(0, 100, 1.0)
    for _ in range(9):
        pace.stepped(4, 0, 0.5)
    assert pace.room() == 50
    pace.stepped(4, 0, 1000.0)  # held up by something else
    assert pace.room() <= 70
    pace.stepped(4, 1, 100.0)
    assert pace.room() >= 16


class Steps(RuleBasedStateMachine):
    """Requests come, run, are cancelled, with drafts accepted in part; all that stay must end."""

    stateful = False

    def __init__(self) -> None:
        super().__init__()
        self.s = make(pages=12, budget=9, slots=5, stateful=self.stateful)
        self.live: dict[str, tuple[Sequence, int]] = {}
        self.made = 0

    @rule(
        n=st.integers(1, 16),
        answer=st.integers(1, 12),
        key=st.sampled_from("xyz"),
        priority=st.integers(0, 1),
        same=st.booleans(),
    )
    def add(self, n: int, answer: int, key: str, priority: int, same: bool) -> None:
        self.made += 1
        one = sequence(f"{self.made}", [1 if same else self.made] * n, key=key, salt=key, priority=priority)
        self.live[one.id] = (one, n + answer)
        self.s.add(one)

    @precondition(lambda self: self.live)
    @rule(good=st.integers(0, 3), draft=st.booleans())
    def step(self, good: int, draft: bool) -> None:
        if draft:
            for q in self.s.running:
                if q.decoding:
                    q.drafts = [5, 5, 5]
        works = self.s.plan()
        assert works, "there was something to do"
        assert sum(len(w.tokens) for w in works) <= 9
        assert len({w.sequence for w in works}) == len(works)
        for w in works:
            accepted = [*w.tokens[w.sure :][:good], 7] if w.wants else []
            self.s.commit(w, accepted)
            if w.snapshot and w.sequence.holding is not None:
                assert w.sequence.past % P == 0 and self.stateful
                self.s.cache.keep_snapshot(w.sequence.holding, "states", 1 << 27, w.snapshot)  # of 1 << 30
            one, end = self.live[w.sequence.id]
            if len(one.tokens) >= end:
                self.s.remove(one)
                del self.live[one.id]

    @precondition(lambda self: self.live)
    @rule(i=st.integers(0, 99))
    def cancel(self, i: int) -> None:
        name = sorted(self.live)[i % len(self.live)]
        one, _ = self.live.pop(name)
        self.s.remove(one)

    @invariant()
    def books(self) -> None:
        self.s.check_integrity()
        assert {q.id for q in (*self.s.waiting, *self.s.running)} == set(self.live)

    def teardown(self) -> None:
        """Whatever is left ends in bounded time: nothing starves."""
        for _ in range(40 * (len(self.live) + 1)):
            if not self.live:
                break
            self.step(0, False)
        assert not self.live
        assert self.s.cache.free_slots == 4


Steps.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None, derandomize=True)
TestSteps = Steps.TestCase


class StatefulSteps(Steps):
    """The same of a model with recurrent states: chunks end at pages' ends, a resume needs states that were kept."""

    stateful = True


StatefulSteps.TestCase.settings = Steps.TestCase.settings
TestStatefulSteps = StatefulSteps.TestCase
