"""GBNF: every notation against what it means, with and without recursion, and refusals by line and column."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.bpe_engine import tokenizer
from tensormill.errors import RequestError
from tensormill.sampling.gbnf import to_lark
from tensormill.sampling.gbnf_parse import Node, parse
from tensormill.sampling.grammar import Grammars

RECURSIVE = '\nnest ::= "(" nest? ")"\n'
JSON = r"""
# llama.cpp's way of writing JSON
root   ::= object
value  ::= object | array | string | number |
  ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(tokenizer())


def matches(grammars: Grammars, grammar: str, text: str) -> bool:
    matcher = grammars.compile("gbnf", grammar)
    ids = tokenizer().encode(text, parse_special=True)
    if matcher.fits(ids) < len(ids):
        return False
    for token in ids:
        matcher.accept(token)
    return matcher.complete


@pytest.mark.parametrize("more", ["", RECURSIVE], ids=["regular", "recursive"])
@pytest.mark.parametrize(
    ("body", "good", "bad"),
    [
        ('"yes" | "no"', ["yes", "no"], ["", "ye", "yesno"]),
        ('("a" | "ab") ("bc" | "c")', ["abc", "ac", "abbc"], ["ab", "abcc"]),
        ('[a-c]+ "c"', ["ac", "ccc", "abcabc"], ["c", "ab"]),
        ('[^a-c"]', ["d", "é", "🦙", "\n"], ["a", '"', "dd"]),
        ('[-a] [a-] [\\]\\\\] [\\x41-\\u0043]', ["--]A", "aa\\C"], ["b-]A", "--[A", "--]D"]),
        ('.{2}', ["ab", "é\n", "日本"], ["a", "abc"]),
        ('"a"* "b"? "c"+', ["c", "aabcc", "acc"], ["", "ab", "abb"]),
        ('"x"{2} "y"{1,2} "z"{2,} "w"{,1}', ["xxyzz", "xxyyzzzw"], ["xyzz", "xxyyyzz", "xxyz", "xxyzzww"]),
        ('("ab"){2}', ["abab"], ["abb", "ab"]),
        ('"\\t\\"\\\\\\u00e9\\U0001F999" # a comment', ['\t"\\é🦙'], ["t"]),
        ('"a" ("b" |\n "c")\n | "d" # over lines', ["ab", "ac", "d"], ["a"]),
        ('other-rule other_rule2\nother-rule ::= "a"\nother_rule2 ::= | "b"', ["a", "ab"], ["b", ""]),
        ('""', [""], ["a"]),
    ],
)  # fmt: skip
def test_notation(grammars: Grammars, body: str, good: list[str], bad: list[str], more: str) -> None:
    grammar = f"root ::= start{' | nest' if more else ''}\nstart ::= {body}\n{more}"
    assert [t for t in good if not matches(grammars, grammar, t)] == []
    assert [t for t in bad if matches(grammars, grammar, t)] == []
    if more:
        assert matches(grammars, grammar, "((()))") and not matches(grammars, grammar, "(()")


def test_json(grammars: Grammars) -> None:
    for good in ('{"a": [1, -2.5e3, true, null, {}], "b\\n\\u00e9": "x"}', "{}", '{\n\t"a": "🦙"}'):
        assert matches(grammars, JSON, good), good
    for bad in ("[1]", '{"a"}', '{"a": 01}', '{"a": "\x01"}', '{"a": "\\x"}', '{"a": 1,}'):
        assert not matches(grammars, JSON, bad), bad


def test_tokens(grammars: Grammars) -> None:
    token = tokenizer().id_of("<|python_tag|>")
    assert matches(grammars, f'root ::= "a" <[{token}]> [bc]', "a<|python_tag|>b")
    assert not matches(grammars, f'root ::= "a" <[{token}]> [bc]', "ab")


def ends(rules: dict[str, Node], node: Node, text: str, at: int) -> set[int]:
    """What a grammar means, slowly: where a match of `node` that begins at `at` may end. No left recursion."""
    if node.kind == "rule":
        return ends(rules, rules[node.text], text, at)
    if node.kind == "text":
        return {at + len(node.text)} if text.startswith(node.text, at) else set()
    if node.kind == "chars":
        inside = at < len(text) and any(low <= ord(text[at]) <= high for low, high in node.ranges)
        return {at + 1} if inside else set()
    if node.kind == "choice":
        return {end for part in node.parts for end in ends(rules, part, text, at)}
    if node.kind == "sequence":
        found = {at}
        for part in node.parts:
            found = {end for start in found for end in ends(rules, part, text, start)}
        return found
    found, reached, count = {at} if node.least == 0 else set(), {at}, 0
    while reached and count != node.most and count <= len(text) + node.least:
        reached = {end for start in reached for end in ends(rules, node.parts[0], text, start)}
        count += 1
        found |= reached if count >= node.least else set()
    return found


@st.composite
def bodies(draw: st.DrawFn, depth: int = 2) -> str:
    """A random right-hand side over a, b and two other rules."""
    if depth == 0:
        return draw(st.sampled_from(['"a"', '"ab"', '"ba"', "[ab]", "[^a]", "one", "two", '"aa"']))
    parts = draw(st.lists(bodies(depth - 1), min_size=1, max_size=3))
    joined = draw(st.sampled_from([" ", " | "])).join(parts)
    return f"({joined})" + draw(st.sampled_from(["", "", "?", "*", "+", "{2}", "{1,2}"]))


TEXTS = ["".join(t) for n in range(6) for t in itertools.product("ab", repeat=n)]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(bodies(), bodies(1), bodies(1))
def test_random_recursive_grammars_lose_and_gain_nothing(grammars: Grammars, root: str, one: str, two: str) -> None:
    one, two = (body.replace("one", '"b"').replace("two", '"bb"') for body in (one, two))
    grammar = f'root ::= {root} tail\ntail ::= | "a" tail "b"\none ::= {one}\ntwo ::= {two} one'
    rules = parse(grammar)
    expected = [t for t in TEXTS if len(t) in ends(rules, rules["root"], t, 0)]
    assert [t for t in TEXTS if matches(grammars, grammar, t)] == expected, to_lark(grammar)


def test_json_is_cut_into_lexemes() -> None:
    """Strings and numbers are lexemes: masks for them cost a hundredth of what single characters cost."""
    lark = to_lark(JSON)
    assert lark.count("T_4") > 2 and "r_4" not in lark and '"true"' in lark


@pytest.mark.parametrize(
    ("grammar", "where", "what"),
    [
        ("", "line 1, column 1", "no rule 'root'"),
        ('start ::= "a"', "line 1, column 14", "no rule 'root'"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "already"),
        ('root = "a"', "line 1, column 6", "'::='"),
        ('root ::= "a" |\n  foo', "line 2, column 3", "no rule 'foo'"),
        ('root ::= "a', "line 1, column 10", "no closing"),
        ("root ::= [a-", "line 1, column 10", "no closing"),
        ("root ::= [z-a]", "line 1, column 11", "range"),
        ("root ::= []", "line 1, column 10", "empty class"),
        ('root ::= ("a"', "line 1, column 14", r"'\)'"),
        ('root ::= "a"{3,2}', "line 1, column 13", "rise"),
        ('root ::= "a"{x}', "line 1, column 13", "number of repetitions"),
        ('root ::= "\\q"', "line 1, column 11", "escape"),
        ('root ::= "\\x4"', "line 1, column 12", "hexadecimal"),
        ("root ::= !a", "line 1, column 10", "'!' has no meaning"),
        ("root ::= <think>", "line 1, column 10", "tokens"),
        ('root ::= "a" )', "line 1, column 14", "name of a rule"),
    ],
)  # fmt: skip
def test_refusals(grammar: str, where: str, what: str) -> None:
    with pytest.raises(RequestError, match=f"{where}: .*{what}"):
        to_lark(grammar)
