"""`Tokenizer`: text to ids and back with a file's vocabulary; ids equal llama.cpp's.

This joins the parts (vocab, endings, special, one encoder) and adds what stands around them: BOS, EOS, the space prefix,
bytes of tokens. It knows no chat format: see the room `chat`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from tensormill.errors import RequestError, TokenizerError
from tensormill.tokenizer.bpe import BPE, BYTE_OF, UnspacedBPE
from tensormill.tokenizer.endings import settle
from tensormill.tokenizer.pre import Family, family
from tensormill.tokenizer.special import special_tokens
from tensormill.tokenizer.spm import SPM
from tensormill.tokenizer.stream import StreamDecoder
from tensormill.tokenizer.unigram import Unigram
from tensormill.tokenizer.vocab import PREFIX, Kind, Vocab, byte_of, read_vocab
from tensormill.tokenizer.wordpiece import WordPiece
from tensormill.tokenizer.words import ESCAPED_SPACE

log = logging.getLogger(__name__)
_HIDDEN = (Kind.CONTROL, Kind.UNKNOWN)
_VERBATIM = (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED)


class _Encoder(Protocol):
    def encode(self, text: str, out: list[int]) -> None: ...


_WITHOUT_PRE: dict[str, Callable[[Vocab], _Encoder]] = {"llama": SPM, "bert": WordPiece, "t5": Unigram}
_LOSSY = ("bert", "t5")


class Tokenizer:
    """A vocabulary ready to use. Build it with `from_metadata`."""

    def __init__(self, vocab: Vocab, rules: Family | None, encoder: _Encoder, *, pre: str) -> None:
        self._vocab = vocab
        self._encoder = encoder
        self._byte_level = rules is not None and rules.byte_level
        self._escaped = rules is None or rules.spaces_escaped
        self._pieces: dict[int, bytes] = {}
        self.end_ids = settle(vocab)
        self._special = special_tokens(
            vocab,
            model_name=_text(vocab.metadata, "general.name"),
            pre=pre,
            architecture=_text(vocab.metadata, "general.architecture"),
        )
        spm, bert, t5 = (vocab.model == m for m in ("llama", "bert", "t5"))
        self._space_prefix = vocab.flag("add_space_prefix", spm)
        self.add_bos = vocab.flag("add_bos_token", spm or (rules is not None and rules.add_bos))
        self.add_bos |= bert or (rules is not None and rules.force_bos)
        self.add_eos = vocab.flag("add_eos_token", t5) and not bert
        self.add_sep = bert

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], *, pre: str | None = None) -> Tokenizer:
        """Build from a GGUF file's keys; `pre` overrides `tokenizer.ggml.pre`.

        TokenizerError: no tokenizer in the file, a kind or pre-tokenizer that we do not know, or inconsistent arrays.
        """
        vocab = read_vocab(metadata)
        name = pre or _text(metadata, PREFIX + "pre")
        if vocab.model in _WITHOUT_PRE:
            return cls(vocab, None, _WITHOUT_PRE[vocab.model](vocab), pre=name)
        if vocab.model == "gemma4" and pre is None:
            name = "gemma4"
        if not name:
            log.warning("the file names no pre-tokenizer: using 'default'; answers may suffer (--pre NAME overrides)")
            name = "default"
        rules = family(name)
        if rules.no_bos and PREFIX + "bos_token_id" not in metadata:
            vocab.ids["bos"] = None
        bpe = BPE(vocab, rules, merges_required=name != "kimi-k2")
        if vocab.model == "whitespace":
            lowercase = vocab.flag("normalizer.lowercase", name != "whitespace")
            return cls(vocab, rules, UnspacedBPE(bpe, lowercase), pre=name)
        return cls(vocab, rules, bpe, pre=name)

    @property
    def tokens(self) -> Sequence[str]:
        """Tokens as the file spells them, by id."""
        return self._vocab.tokens

    @property
    def n_vocab(self) -> int:
        """Number of tokens; the model's output may have more rows."""
        return len(self._vocab.tokens)

    @property
    def bos(self) -> int | None:
        """Beginning of text."""
        return self._vocab.ids["bos"]

    @property
    def eos(self) -> int | None:
        """End of text."""
        return self._vocab.ids["eos"]

    @property
    def eot(self) -> int | None:
        """End of a turn."""
        return self._vocab.ids["eot"]

    @cached_property
    def longest(self) -> int:
        """Most bytes of text that one token stands for; 0 where one may stand for any number (spaces vanish, or words)."""
        if self._vocab.model in (*_LOSSY, "whitespace"):
            return 0
        return max(len(text if self._byte_level else text.encode("utf-8", "replace")) for text in self._vocab.tokens)

    def special_id(self, role: str) -> int | None:
        """Id by role: bos eos eot eom unk sep pad cls mask fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep."""
        return self._vocab.ids[role]

    def id_of(self, token: str) -> int | None:
        """Id of a token as the file spells it."""
        return self._vocab.index.get(token)

    def kind(self, token: int) -> Kind:
        """Normal, control, user-defined, … ; corrected by text where files are known to be wrong."""
        return Kind(int(self._vocab.kinds[self._checked(token)]))

    @property
    def controls(self) -> list[str]:
        """Texts that `encode` makes control tokens of where it parses them."""
        return self._special.controls

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False, sign: str = "") -> list[int]:
        """Ids of a text. `add_special`: with BOS, EOS, SEP as the file asks. `parse_special`: `<|im_end|>` and the like
        in the text become control tokens; leave it off for text that a user wrote. `sign`: a text that is taken out once
        control tokens have been found, so that none is found where it stood."""
        ids: list[int] = []
        if add_special and self.add_bos and self.bos is not None:
            ids.append(self.bos)
        after_special = True
        for piece in self._special.cut(_whole_characters(text), parse_special, sign):
            if isinstance(piece, int):
                ids.append(piece)
                after_special = True
            else:
                prefix = " " if self._space_prefix and after_special and self._vocab.model == "llama" else ""
                self._encoder.encode(prefix + piece, ids)
                after_special = False
        last = self._vocab.ids["sep"] if self.add_sep else self.eos if self.add_eos else None
        if add_special and last is not None:
            ids.append(last)
        return ids

    def spelled(self, text: bytes) -> list[int]:
        """Ids whose pieces are exactly these bytes: as `encode` has them, but without the space that some vocabularies want in
        front, and by the longest pieces where text is normalised or characters are cut."""
        ids: list[int] = []
        for piece in self._special.cut(text.decode("utf-8", "replace"), False):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                self._encoder.encode(piece, ids)
        return ids if b"".join(map(self.piece, ids)) == text else self._longest_pieces(text)

    def _longest_pieces(self, text: bytes) -> list[int]:
        known = self._by_piece
        ids, at = [], 0
        while at < len(text):
            ends = range(min(len(text), at + 64), at, -1)
            end = next((e for e in ends if text[at:e] in known), 0)
            if not end:
                break  # no token spells this byte
            ids.append(known[text[at:end]])
            at = end
        return ids

    @cached_property
    def _by_piece(self) -> dict[bytes, int]:
        kinds = (Kind.NORMAL, Kind.BYTE, Kind.USER_DEFINED)
        return {self.piece(i): i for i in reversed(range(self.n_vocab)) if self.kind(i) in kinds}

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """Text of ids; `special` shows control tokens. Drops the space that `encode` put in front, as llama.cpp does."""
        pieces = [self._shown(token, special) for token in ids]
        if self._space_prefix and pieces and pieces[0].startswith(b" "):
            pieces[0] = pieces[0][1:]
        return b"".join(pieces).decode("utf-8", "replace")

    def stream(self, *, special: bool = True) -> StreamDecoder:
        """A decoder for the tokens of one answer, one at a time; spaces are kept as they are."""
        return StreamDecoder(lambda token: self._shown(token, special))

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to the text; b"" for unused tokens. RequestError for an id out of range."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._make_piece(self._checked(token))
        return known

    def _shown(self, token: int, special: bool) -> bytes:
        return self.piece(token) if special or self.kind(token) not in _HIDDEN else b""

    def _checked(self, token: int) -> int:
        if not 0 <= token < len(self._vocab.tokens):
            raise RequestError(f"token id {token} is out of range: the vocabulary has {len(self._vocab.tokens)} tokens")
        return token

    def _make_piece(self, token: int) -> bytes:
        text, kind = self._vocab.tokens[token], self.kind(token)
        if kind in _VERBATIM:
            return text.encode("utf-8", "replace")
        if kind == Kind.BYTE:
            return bytes((byte_of(text),))
        if kind != Kind.NORMAL:
            return b""
        if self._byte_level or not self._escaped:
            try:
                return bytes(map(BYTE_OF.__getitem__, text))
            except KeyError:  # characters that stand for no byte stand for themselves
                return b"".join(bytes((BYTE_OF[c],)) if c in BYTE_OF else c.encode("utf-8", "replace") for c in text)
        return text.replace(ESCAPED_SPACE, " ").encode("utf-8", "replace")


def _text(metadata: Mapping[str, object], key: str) -> str:
    value = metadata.get(key, "")
    if not isinstance(value, str):
        raise TokenizerError(f"{key} is {value!r}, expected text")
    return value


def _whole_characters(text: str) -> str:
    """Join surrogate pairs and replace lone halves, which no UTF-8 can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
