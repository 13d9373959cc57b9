"""Stop strings across pieces: the same text whatever the cuts, and nothing held back without need."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.sampling import StopMatcher

TEXT = st.text(alphabet="ab\n", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\n", min_size=1, max_size=4), max_size=3)


def run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(piece)[0] for piece in pieces)
    return shown + matcher.finish(), matcher.matched


def by_definition(stops: list[str], text: str) -> tuple[str, str | None]:
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=6))
def test_same_for_all_cuts(text: str, stops: list[str], cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert run(stops, pieces) == run(stops, list(text)) == by_definition(stops, text)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(TEXT, STOPS)
def test_holds_back_only_what_may_become_a_stop(text: str, stops: list[str]) -> None:
    matcher, shown = StopMatcher(stops), ""
    for end, character in enumerate(text, 1):
        shown += matcher.push(character)[0]
        if matcher.stopped:
            break
        held = text[len(shown) : end]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_examples() -> None:
    matcher = StopMatcher(["</s>", "User:"])
    assert [matcher.push(piece)[0] for piece in ("Hi <", "/", "b> U", "s", "er", ": x", "y")] == [
        "Hi ",
        "",
        "</b> ",
        "",
        "",
        "",
        "",
    ]
    assert matcher.matched == "User:"
    assert matcher.finish() == ""
    assert StopMatcher([]).push("all") == ("all", False)
