"""n-grams: longest match first, then the most recent, in constant time; the governor's arithmetic."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tensormill.speculation import FirstOf, Governor, NGram, Wish


def guess(tokens: list[int], most: int = 4, **options: int) -> list[int]:
    return NGram(**options).propose([Wish("a", tokens, most)])[0]


def test_what_followed_last_time():
    assert guess([1, 2, 3, 4, 9, 1, 2]) == [3, 4, 9, 1]
    assert guess([1, 2, 3, 4, 9, 1, 2], most=2) == [3, 4]
    assert guess([1, 2, 3]) == [] and guess([1]) == [] and guess([]) == []


def test_longest_then_latest():
    assert guess([7, 1, 2, 3, 0, 8, 1, 2, 4, 0, 7, 1, 2], most=1) == [3], "three tokens match there"
    assert guess([8, 1, 2, 3, 0, 8, 1, 2, 4, 0, 8, 1, 2], most=1) == [4], "both match three, the second is later"


def test_a_loop_goes_on():
    assert guess([5, 1, 2, 1, 2, 1, 2], most=7) == [1, 2, 1, 2, 1, 2, 1]


def brute(tokens: list[int], most: int, least: int, longest: int) -> list[int]:
    best, length = 0, 0
    for place in range(len(tokens) - 1, least - 1, -1):
        n = 0
        while n < min(longest, place) and tokens[place - 1 - n] == tokens[-1 - n]:
            n += 1
        if n >= least and n > length:
            best, length = place, n
    return [(tokens + tokens[best:] * most)[best + i] for i in range(min(most, 2 * length))]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 9), st.integers(1, 3))
def test_as_by_looking_everywhere(tokens: list[int], most: int, least: int):
    proposer = NGram(least=least, longest=16, places=99)
    for end in range(len(tokens) + 1):
        assert proposer.propose([Wish("a", tokens[:end], most)]) == [brute(tokens[:end], most, least, 16)]


def test_several_and_forgotten():
    proposer = NGram()
    wishes = [Wish("a", [1, 2, 3, 1, 2], 2), Wish("b", [4, 5, 6, 7], 2)]
    assert proposer.propose(wishes) == [[3, 1], []]
    proposer.forget("a")
    assert proposer.propose([Wish("a", [9, 9, 8, 9, 9], 1)]) == [[8]]


def test_first_that_has_any():
    assert FirstOf([NGram(least=3), NGram(least=1)]).propose(
        [Wish("a", [1, 2, 1], 1), Wish("b", [1, 2, 3, 4, 1, 2, 3], 1)]
    ) == [[2], [4]]


def measured(slope: float) -> Governor:
    """A governor that has seen steps of 1 s and `slope` s more for each row behind the first."""
    governor = Governor()
    for i in range(50):
        rows = 1 + i % 5
        governor.stepped(rows, 1 + slope * (rows - 1))
    return governor


def test_guesses_while_they_pay():
    assert Governor().most("new", 6, 1) == 6, "nothing is known yet"
    assert measured(0.01).most("a", 6, 1) == 6
    assert measured(0.01).most("a", 0, 1) == 0
    assert 0 < measured(0.3).most("a", 6, 1) < 6, "the later a guess, the less likely"
    cheap = measured(0.05)
    assert cheap.most("a", 6, 1) > cheap.most("b", 6, 12), "in company a guess saves only one sequence's share of a step"


def test_parked_and_tried_again():
    governor = measured(0.2)
    turns = []
    for turn in range(200):
        most = governor.most("bad", 4, 1)
        if most:
            turns.append(turn)
            governor.learned("bad", most, 0)
    assert len(turns) < 40 and turns[0] == 0
    gaps = [b - a for a, b in pairwise(turns) if b - a > 2]
    assert gaps == sorted(gaps) and len(gaps) >= 2, "longer each time"
    assert governor.most("good", 4, 1) > 0, "others are not concerned"


def test_slow_proposers_count():
    governor = measured(0.01)
    governor.proposed(90.0, 30, ["a"])
    assert governor.most("a", 4, 1) == 4, "a request's first time is no measure: its prompt was read"
    governor.proposed(90.0, 30, ["a"])
    assert governor.most("a", 4, 1) == 0
    governor.forget("a")
