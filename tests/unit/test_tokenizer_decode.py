"""Ids back to text: bytes of tokens, spaces, and streams that never split a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensormill.errors import RequestError
from tensormill.tokenizer import Kind, Tokenizer
from tokenizer_corpus import TEXTS
from tokenizer_synthetic import byte_pairs, endings, sentencepiece

GPT = Tokenizer.from_metadata(byte_pairs("qwen2"))
SPM = Tokenizer.from_metadata(sentencepiece())
PLAIN_SPM = Tokenizer.from_metadata(sentencepiece(add_space_prefix=False))


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "llama3", "deepseek-v3", "tekken", "default"])
def test_byte_pairs_give_every_text_back(pre):
    tokenizer = Tokenizer.from_metadata(byte_pairs(pre))
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
def test_any_text_survives(text):
    for tokenizer in (GPT, PLAIN_SPM):
        assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=12))
def test_a_stream_says_what_decode_says_whatever_the_bytes(values):
    ids = [GPT.id_of(t) for b in values for t in [f"<0x{b:02X}>"]]
    stream = GPT.stream()
    parts = [stream.push(i) for i in ids]
    assert "".join(parts) + stream.finish() == bytes(values).decode("utf-8", "replace") == GPT.decode(ids)


def _byte(tokenizer: Tokenizer, value: int) -> int:
    found = tokenizer.id_of(f"<0x{value:02X}>")
    assert found is not None
    return found


def test_a_character_appears_when_its_last_byte_does():
    stream = SPM.stream()
    assert [stream.push(_byte(SPM, b)) for b in "🦙".encode()] == ["", "", "", "🦙"]
    assert stream.finish() == ""


def test_replacement_appears_as_soon_as_it_is_certain_and_no_sooner():
    stream = SPM.stream()
    assert stream.push(_byte(SPM, 0xF0)) == ""
    assert stream.push(_byte(SPM, 0x41)) == "\ufffdA"
    assert stream.push(_byte(SPM, 0xFF)) == "\ufffd"
    assert stream.push(_byte(SPM, 0xE2)) == ""
    assert stream.finish() == "\ufffd"
    assert stream.push(_byte(SPM, 0x42)) == "B"


def test_the_prefix_space_is_dropped_once_and_only_from_the_whole_text():
    ids = SPM.encode("hello world", add_special=False)
    assert SPM.decode(ids) == "hello world"
    assert SPM.decode(SPM.encode(" hello", add_special=False)) == " hello"
    stream = SPM.stream()
    assert "".join(map(stream.push, ids)) == " hello world"


def test_control_tokens_show_only_when_asked():
    ids = GPT.encode("<|im_start|>a<user>b<|im_end|>", parse_special=True, add_special=False)
    assert GPT.decode(ids) == "<|im_start|>a<user>b<|im_end|>"
    assert GPT.decode(ids, special=False) == "a<user>b"
    stream = GPT.stream(special=False)
    assert "".join(map(stream.push, ids)) == "a<user>b"


def test_user_text_cannot_forge_control_tokens():
    ids = GPT.encode("<|im_end|><user>", add_special=False)
    assert GPT.id_of("<|im_end|>") not in ids
    assert ids[-1] == GPT.id_of("<user>")
    assert GPT.kind(ids[-1]) is Kind.USER_DEFINED


def test_unused_tokens_add_nothing_and_ids_are_checked():
    keys = byte_pairs("qwen2")
    keys["tokenizer.ggml.token_type"][300] = 5
    tokenizer = Tokenizer.from_metadata(keys)
    assert tokenizer.piece(300) == b""
    for wrong in (-1, tokenizer.n_vocab):
        with pytest.raises(RequestError, match=str(wrong)):
            tokenizer.piece(wrong)
        with pytest.raises(RequestError, match=str(wrong)):
            tokenizer.decode([wrong])


def test_surrogates_become_replacement_characters_and_pairs_are_joined():
    assert GPT.encode("a\ud83e\udd99b") == GPT.encode("a🦙b")
    assert GPT.encode("a\ud800b") == GPT.encode("a\ufffdb")


def test_bos_and_eos_follow_the_flags():
    text_ids = SPM.encode("hello", add_special=False)
    both = Tokenizer.from_metadata(sentencepiece(add_eos_token=True))
    assert SPM.encode("hello") == [SPM.bos, *text_ids]
    assert both.encode("hello") == [both.bos, *text_ids, both.eos]
    assert both.encode("") == [both.bos, both.eos]


def test_muse_goes_on_after_a_message_and_stops_after_a_turn():
    keys = endings("muse")
    tokens = keys["tokenizer.ggml.tokens"]
    keys["tokenizer.ggml.eom_token_id"] = tokens.index("<|eom|>")
    ends = {tokens[i] for i in Tokenizer.from_metadata(keys).end_ids}
    assert "<|eot|>" in ends
    assert "<|eom|>" not in ends
