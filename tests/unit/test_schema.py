"""JSON schemas: every keyword is enforced, harmless, or refused by name and path; never passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.bpe_engine import tokenizer
from tensormill.bounds import MOST_GRAMMAR, MOST_SUBSCHEMAS
from tensormill.errors import RequestError
from tensormill.sampling import schema as schemas
from tensormill.sampling.grammar import Grammars
from tensormill.sampling.schema import ENFORCED, INFORMING, Effort, checked
from tensormill.sampling.sources import source


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(tokenizer())


def accepts(grammars: Grammars, schema: Any, value: Any) -> bool:
    matcher = grammars.compile("json_schema", json.dumps(schema))
    ids = tokenizer().encode(json.dumps(value, ensure_ascii=False))
    if matcher.fits(ids) < len(ids):
        return False
    for token in ids:
        matcher.accept(token)
    return matcher.complete


OBJECT = {"type": "object"}
# keyword: schema, values that fit, values that do not
KEPT: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "type": ({"type": ["integer", "null"]}, [1, None], ["1", 1.5]),
    "enum": ({"enum": [1, "a", {"b": None}]}, [1, "a", {"b": None}], [2, "b", {}]),
    "const": ({"const": [1, "é"]}, [[1, "é"]], [[1]]),
    "anyOf": ({"anyOf": [{"type": "boolean"}, {"type": "integer"}]}, [True, 3], ["a"]),
    "oneOf": ({"oneOf": [{"type": "boolean"}, {"type": "integer"}]}, [True, 3], ["a"]),
    "allOf": ({"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 3}]}, ["ab", "abc"], ["a", "abcd"]),
    "$ref": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, [None], [1]),
    "$defs": ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/x/items"}}, "$defs": {"x": {"items": {"type": "null"}}}},
              [{"a": None}], [{"a": 1}]),
    "definitions": ({"$ref": "#/definitions/a", "definitions": {"a": {"type": "null"}}}, [None], [1]),
    "properties": ({**OBJECT, "properties": {"a": {"type": "integer"}}}, [{}, {"a": 1}, {"b": "x"}], [{"a": "x"}]),
    "required": ({**OBJECT, "required": ["a"]}, [{"a": 1}], [{}]),
    "additionalProperties": ({**OBJECT, "additionalProperties": {"type": "null"}}, [{"x": None}], [{"x": 1}]),
    "patternProperties": ({**OBJECT, "patternProperties": {"^a": {"type": "null"}}, "additionalProperties": False},
                          [{"ab": None}], [{"ab": 1}, {"b": None}]),
    "minProperties": ({**OBJECT, "minProperties": 1}, [{"a": 1}], [{}]),
    "maxProperties": ({**OBJECT, "maxProperties": 1}, [{}, {"a": 1}], [{"a": 1, "b": 2}]),
    "items": ({"type": "array", "items": {"type": "null"}}, [[], [None]], [[1]]),
    "prefixItems": ({"type": "array", "prefixItems": [{"type": "null"}], "items": False}, [[None]], [[1], [None, 1]]),
    "additionalItems": ({"type": "array", "items": [{"type": "null"}], "additionalItems": False}, [[None]], [[1], [None, 1]]),
    "minItems": ({"type": "array", "minItems": 2}, [[1, 2]], [[1]]),
    "maxItems": ({"type": "array", "maxItems": 1}, [[], [1]], [[1, 2]]),
    "minLength": ({"type": "string", "minLength": 2}, ["é日"], ["é"]),
    "maxLength": ({"type": "string", "maxLength": 1}, ["🦙"], ["ab"]),
    "pattern": ({"type": "string", "pattern": "^[ab]+$"}, ["abba"], ["abc", ""]),
    "format": ({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-13-01", "x"]),
    "minimum": ({"type": "integer", "minimum": -3}, [-3, 12], [-4]),
    "maximum": ({"type": "number", "maximum": 3.5}, [3.5, -9], [3.6]),
    "exclusiveMinimum": ({"type": "integer", "exclusiveMinimum": 3}, [4], [3]),
    "exclusiveMaximum": ({"type": "integer", "exclusiveMaximum": 3}, [2], [3]),
    "multipleOf": ({"type": "integer", "multipleOf": 3}, [9], [10]),
    "nullable": ({**OBJECT, "properties": {"a": {"type": "integer", "nullable": True}}}, [{"a": None}, {"a": 1}], [{"a": "x"}]),
}  # fmt: skip


def test_the_list_is_whole() -> None:
    assert set(KEPT) == ENFORCED


@pytest.mark.parametrize("keyword", KEPT)
def test_enforced(grammars: Grammars, keyword: str) -> None:
    schema, good, bad = KEPT[keyword]
    assert keyword in json.dumps(schema)
    assert [v for v in good if not accepts(grammars, schema, v)] == []
    assert [v for v in bad if accepts(grammars, schema, v)] == []


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("not", {}), ("if", {}), ("then", {}), ("else", {}), ("contains", {}), ("minContains", 1), ("maxContains", 1),
        ("uniqueItems", True), ("dependentRequired", {"a": ["b"]}), ("dependentSchemas", {}), ("dependencies", {}),
        ("propertyNames", {"pattern": "a"}), ("unevaluatedProperties", False), ("unevaluatedItems", False),
        ("$dynamicRef", "#a"), ("$recursiveRef", "#"), ("minLenght", 3), ("divisibleBy", 2), ("x-guidance", {"lenient": True}),
    ],
)  # fmt: skip
def test_refused_by_keyword_and_path_or_loosened(keyword: str, value: Any) -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "array", "items": {keyword: value}}}}
    with pytest.raises(RequestError, match=rf"mine: the keyword {keyword!r} at #/properties/a~1b/items ".replace("$", r"\$")):
        checked(schema, strict=True, title="mine")
    assert checked(schema, strict=False, title="mine") == {**OBJECT, "properties": {"a/b": {"type": "array", "items": {}}}}


@pytest.mark.parametrize(
    ("schema", "keyword", "loosened"),
    [
        ({"type": "string", "format": "iri"}, "format", {"type": "string"}),
        ({"type": "string", "pattern": "(?=a)b"}, "pattern", {"type": "string"}),
        ({"$ref": "https://example.org/x"}, r"\$ref", {}),
        ({"$ref": "#/$defs/none"}, r"\$ref", {}),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, "oneOf", {"anyOf": [{"type": "string"}, {"minLength": 2}]}),
        ({"type": "strong"}, "type", {}),
        ({"type": "string", "minLength": -1}, "minLength", {"type": "string"}),
    ],
)
def test_values_that_cannot_be_kept(schema: Any, keyword: str, loosened: Any) -> None:
    whole = {"type": "object", "properties": {"p": {"anyOf": [{"type": "null"}, schema]}}, "required": ["p"]}
    with pytest.raises(RequestError, match=f"mine: '{keyword}' at #/properties/p/anyOf/1 cannot be enforced: ."):
        checked(whole, strict=True, title="mine")
    assert checked(whole, strict=False, title="mine")["properties"]["p"]["anyOf"][1] == loosened


def test_what_is_refused_is_found_in_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts are refused: each is checked a few times, and none with all the others around it."""
    characters = []
    validated = schemas._validated
    monkeypatch.setattr(schemas, "_validated", lambda text: characters.append(len(text)) or validated(text))
    wrong = {"type": "string", "pattern": "(?=a)b"}
    schema = {"type": "object", "properties": {f"p{i}": {**wrong, "minLength": i} for i in range(100)}}
    made = checked(schema, strict=False, title="mine")
    assert made["properties"] == {f"p{i}": {"type": "string", "minLength": i} for i in range(100)}
    assert sum(characters) < 10 * len(json.dumps(schema))


def test_schemas_and_grammars_have_bounds() -> None:
    many = {"type": "object", "properties": {str(i): True for i in range(MOST_SUBSCHEMAS)}}
    with pytest.raises(RequestError, match=f"mine has {MOST_SUBSCHEMAS + 1} schemas in it; at most {MOST_SUBSCHEMAS}"):
        checked(many, strict=False, title="mine")
    with pytest.raises(RequestError, match=f"at most {MOST_GRAMMAR} are taken"):
        source("lark", 'start: "a" //' + "x" * MOST_GRAMMAR)


def test_the_search_for_faults_has_an_end() -> None:
    """Without it the schemas of one request would be searched for minutes; what is left is refused, or any object."""
    deep: Any = {"type": "string", "pattern": "(?=a)b"}
    for _ in range(20):
        deep = {"type": "object", "properties": {"a": deep, "b": {"type": "string"}}}
    effort = Effort(2000)
    assert checked(deep, strict=False, title="mine", effort=effort) == {"type": "object"}
    with pytest.raises(RequestError, match=r"mine cannot be enforced: .*look-around"):
        checked(deep, strict=True, title="mine", effort=effort)
    assert "pattern" not in json.dumps(checked(deep, strict=False, title="mine"))


def test_what_informs_is_fine() -> None:
    node = dict.fromkeys(sorted(INFORMING - {"$id", "id", "$schema", "$anchor"}), "x")
    assert checked({"type": "null", **node, "x-mine": 3, "uniqueItems": False}, strict=True, title="mine") == {"type": "null"}
    assert checked(True, strict=True, title="mine") == {}


@pytest.mark.parametrize(
    "schema",
    [
        [1], "a", None, False, {"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"type": "object", "required": "a"},
        {"enum": [str(i) for i in range(100_000)]}, {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "integer", "minimum": 5, "maximum": 3},
    ],
    ids=lambda s: str(s)[:40],
)  # fmt: skip
def test_hopeless_ones(grammars: Grammars, schema: Any) -> None:
    with pytest.raises(RequestError, match="schema"):
        grammars.compile("json_schema", json.dumps(schema))


def test_deep_ones(grammars: Grammars) -> None:
    deep: Any = {"type": "null"}
    for _ in range(150):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(RequestError, match="schema"):
        grammars.compile("json_schema", json.dumps(deep))
    with pytest.raises(RequestError, match="no JSON"):
        grammars.compile("json_schema", "[" * 100_000)


def test_white_space_has_bounds(grammars: Grammars) -> None:
    matcher = grammars.compile("json_object", "")
    assert matcher.fits(tokenizer().encode('{\n    "a": [\n        1\n    ]\n}')) > 10
    assert matcher.fits(tokenizer().encode("{" + "\n" * 50)) < 5
    assert matcher.fits(tokenizer().encode("{\n" + " " * 50)) < 45


def test_control_tokens_stay_out_of_strings(grammars: Grammars) -> None:
    t = tokenizer()
    matcher = grammars.compile("json_schema", '{"type": "string"}')
    matcher.accept(t.encode('"')[0])
    allowed = matcher.allowed(t.n_vocab + 3)
    assert not allowed[t.id_of("<|python_tag|>")] and not allowed[sorted(t.end_ids)].any() and not allowed[t.n_vocab :].any()
    assert allowed[t.id_of("<think>")] and allowed[t.encode("a")[0]]
    for token in t.encode('<|im_end|>"'):  # its letters are a text like any other
        matcher.accept(token)
    assert matcher.complete
