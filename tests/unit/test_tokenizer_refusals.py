"""Hostile or unknown vocabularies end in a TokenizerError that says what is wrong; long texts end in time."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.errors import TokenizerError
from tensormill.tokenizer import Tokenizer
from tensormill.tokenizer.pre import stages_in_use
from tensormill.tokenizer.split import splitter
from tokenizer_synthetic import byte_pairs, endings, sentencepiece, unigram, word_pieces

KINDS = {"gpt2": lambda: byte_pairs("gpt-2"), "llama": sentencepiece, "bert": word_pieces, "t5": unigram}
P = "tokenizer.ggml."


def _refused(keys, match, **options):
    with pytest.raises(TokenizerError, match=match):
        Tokenizer.from_metadata(keys, **options)


def test_an_unknown_pre_tokenizer_is_named_with_near_names_and_the_flag():
    _refused(byte_pairs("qwen3"), r"'qwen3'.*qwen2.*--pre NAME")
    _refused(byte_pairs("qwen2"), r"'zzz'", pre="zzz")
    assert Tokenizer.from_metadata(byte_pairs("qwen3"), pre="qwen2").encode("12") != []


def test_a_missing_pre_tokenizer_is_default_with_a_warning(caplog):
    keys = byte_pairs("default")
    del keys[P + "pre"]
    tokenizer = Tokenizer.from_metadata(keys)
    assert "--pre NAME" in caplog.text
    assert tokenizer.encode("a 1234!") == Tokenizer.from_metadata(byte_pairs("default")).encode("a 1234!")


@pytest.mark.parametrize("model", ["rwkv", "plamo2", "none", "no_vocab", "test", "hybriddna", "??"])
def test_unsupported_kinds_are_refused_by_name(model):
    _refused(sentencepiece() | {P + "model": model}, rf"'{model.replace('?', '[?]')}'.*supported: bert")


def test_a_file_without_tokenizer_is_refused():
    _refused({}, "no tokenizer")
    _refused({P + "model": "llama"}, "tokens")
    _refused({P + "model": 3}, "no tokenizer")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("tokens", [], "0 entries"),
        ("tokens", [1, 2], "not an array of strings"),
        ("tokens", "abc", "not an array of strings"),
        ("tokens", ["a", "b", "a"], "'a' twice"),
        ("tokens", ["a" * 70000], "over 65536 characters"),
        ("token_type", np.array([1, 1], np.int32), "2 entries for"),
        ("token_type", ["x"], "not an array of numbers"),
        ("scores", np.array([1.0], np.float32), "1 entries for"),
        ("scores", np.full(100000, np.nan, np.float32), "not a finite number"),
        ("bos_token_id", 10**9, "bos_token_id is 1000000000"),
        ("eos_token_id", -1, "eos_token_id is -1"),
        ("eot_token_id", "x", "expected a token id"),
        ("add_bos_token", "yes", "expected true or false"),
        ("pre", 3, "expected text"),
    ],
)
def test_broken_keys_are_named(kind, key, value, match):
    _refused(KINDS[kind]() | {P + key: value}, match)


def test_ids_that_do_not_matter_for_encoding_are_only_warned_about(caplog):
    Tokenizer.from_metadata(sentencepiece() | {P + "padding_token_id": 2**32 - 1})
    assert "padding_token_id" in caplog.text


@pytest.mark.parametrize("merges", [["a b", "zq xj"], ["ab"], ["a  "], ["\0"], [""], "a b", [1], None])
def test_merges_into_no_token_are_refused(merges):
    keys = byte_pairs("gpt-2")
    keys[P + "tokens"] = keys[P + "tokens"][:258]
    keys[P + "token_type"] = keys[P + "token_type"][:258]
    del keys[P + "bos_token_id"], keys[P + "eos_token_id"]
    _refused(keys | {P + "merges": merges}, "merges")


def test_broken_byte_tokens_are_refused():
    keys = sentencepiece()
    for wrong in ("<0xZZ>", "<0x1>", "x", "<0x1234>"):
        tokens = list(keys[P + "tokens"])
        tokens[5] = wrong
        _refused(keys | {P + "tokens": tokens}, "byte token")


def test_an_endless_normal_token_is_refused_where_every_length_is_tried():
    for make in (word_pieces, unigram):
        keys = make()
        _refused(keys | {P + "tokens": [*keys[P + "tokens"][:-3], "a" * 300, "§1", "§2"]}, "over 256 characters")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.text(max_size=20))
def test_a_corrupt_character_map_is_refused_or_harmless(blob, text):
    keys = unigram() | {P + "precompiled_charsmap": np.frombuffer(blob, np.uint8)}
    with contextlib.suppress(TokenizerError):
        Tokenizer.from_metadata(keys).encode(text)


def test_a_character_map_replaces_the_longest_prefix():
    """A table of our own: "A" → "the", "AB" → "of"; the base of node n is chosen so that children do not collide."""
    units = [0] * 1024
    units[0] = 256 << 10
    a = 256 ^ ord("A")
    units[a] = ((a ^ 512) << 10) | 0x100 | ord("A")  # base leads to 512; a leaf ends here
    units[512] = 0x80000000
    ab = 512 ^ ord("B")
    units[ab] = ((ab ^ 768) << 10) | 0x100 | ord("B")
    units[768] = 0x80000000 | 4
    blob = (4096).to_bytes(4, "little") + np.array(units, "<u4").tobytes() + b"the\0of\0"
    mapped = Tokenizer.from_metadata(unigram() | {P + "precompiled_charsmap": np.frombuffer(blob, np.uint8)})
    plain = Tokenizer.from_metadata(unigram())
    for text, meant in (("A", "the"), ("AB", "of"), ("AA ABA B", "thethe ofthe B"), ("école A", "école the")):
        assert mapped.encode(text) == plain.encode(meant)


RUNS = {
    "letters": "a" * 20_000,
    "spaces": " " * 20_000 + "x",
    "newlines": "\n " * 10_000,
    "digits": "7" * 20_000,
    "quotes": "'" * 20_000,
    "cases": "aA" * 10_000,
    "words": "a " * 10_000,
    "marks": "\u0301" * 10_000,
}


@pytest.mark.parametrize("run", RUNS)
def test_long_runs_take_linear_time_in_every_family(run):
    for name, rules in stages_in_use():
        start = time.process_time()
        splitter(rules.stages)(RUNS[run])
        assert time.process_time() - start < 2, name


@pytest.mark.parametrize("kind", KINDS)
def test_long_runs_take_near_linear_time_in_every_kind(kind):
    tokenizer = Tokenizer.from_metadata(KINDS[kind]())
    for name, text in RUNS.items():
        start = time.process_time()
        tokenizer.encode(text, parse_special=True)
        assert time.process_time() - start < 5, name


SMALL = {"llama": sentencepiece(), "bert": word_pieces(), "t5": unigram(), "gpt2": endings("qwen")}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.one_of(st.integers(-3, 2**40), st.text(max_size=2), st.none()), max_size=5),
    st.binary(max_size=8).map(lambda b: np.frombuffer(b, np.uint8)),
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.data(), ODD)
def test_any_key_of_any_wrong_type_is_refused_or_harmless(kind, data, odd):
    keys = dict(SMALL[kind])
    extra = [P + k for k in ("pre", "scores", "merges", "add_space_prefix", "precompiled_charsmap", "eot_token_id")]
    keys[data.draw(st.sampled_from([*keys, *extra]))] = odd
    with contextlib.suppress(TokenizerError):
        tokenizer = Tokenizer.from_metadata(keys)
        tokenizer.decode(tokenizer.encode("hello <|im_end|> 世界 12", parse_special=True))
