"""Small made-up vocabularies, one a kind, deterministic: they test every rule in CI without any download.

The byte-pair one joins any two letters of its alphabet, in an order without pattern, so that a word boundary in a
wrong place shows in the ids; it serves all pre-tokenizer families.
"""

from __future__ import annotations

import random

import numpy as np

from tensormill.tokenizer.bpe import BYTE_ALPHABET
from tensormill.tokenizer.endings import ALWAYS_SHOWN, END_TEXTS, ROLE_TEXTS

Keys = dict[str, object]
CONTROLS = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<mask>", "[MASK]"]


def _keys(model: str, tokens: list[str], kinds: list[int], **more: object) -> Keys:
    keys: Keys = {
        "general.architecture": "llama",
        "general.name": "synthetic",
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
    }
    ids = {f"{role}_token_id": tokens.index(t) for role, t in (("bos", "<s>"), ("eos", "</s>"), ("unknown", "<unk>"))}
    for key, value in (ids | more).items():
        keys[key if "." in key and not key.startswith("normalizer") else f"tokenizer.ggml.{key}"] = value
    return keys


def byte_pairs(pre: str) -> Keys:
    """Every pair of (256 stand-ins for bytes, newline, U+2581) is a merge; "\\n\\n\\n" is a token for gemma4's rule."""
    letters = [*BYTE_ALPHABET, "\n", "▁"]
    pairs = [(a, b) for a in letters for b in letters]
    random.Random(3).shuffle(pairs)
    users = ["    ", "<user>"]
    tokens = [*letters, *(a + b for a, b in pairs), "\n\n\n", *(f"<0x{b:02X}>" for b in range(256)), *CONTROLS, *users]
    normal = len(letters) + len(pairs) + 1
    kinds = [1] * normal + [6] * 256 + [3] * len(CONTROLS) + [4] * len(users)
    merges = [f"{a} {b}" for a, b in pairs]
    return _keys("whitespace" if pre == "whitespace" else "gpt2", tokens, kinds, pre=pre, merges=merges)


_WORDS = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out "
    "many then hello world write go see number no way could people my than first water been call who oil its now "
    "find long down day did get come made may part нещо на 世界 你好 日本 العربية ▁▁ ▁▁▁▁ ing ed er un re 12 34 00 ?! .. "
    "'' école ñ é ß 🦙 "
)
WORDS = _WORDS.split()


def _pieces(rng: random.Random) -> list[str]:
    """Words, their beginnings and ends, and single characters, each once."""
    found: dict[str, None] = {}
    for word in WORDS:
        for text in (word, "▁" + word):
            found |= dict.fromkeys(text[:i] for i in range(1, len(text) + 1))
            found |= dict.fromkeys(text[i:] for i in range(len(text)) if rng.random() < 0.5)
    return [p for p in found if p]


def sentencepiece(**more: object) -> Keys:
    """Scores with many ties, a few letters missing, user-defined tokens with spaces, all byte tokens."""
    rng = random.Random(5)
    pieces = [p for p in _pieces(rng) if p not in ("w", "世")]
    users = ["<user>", "  ", "▁▁▁"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces, *users, "<|im_end|>", "<|endoftext|>"]
    tokens = list(dict.fromkeys(tokens))
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(tokens) - 259)
    for i, token in enumerate(tokens):
        kinds[i] = 4 if token in users else 3 if token.startswith("<|") else kinds[i]
    scores = np.array([-float(rng.randrange(60)) for _ in tokens], np.float32)
    return _keys("llama", tokens, kinds, scores=scores, **more)


def word_pieces(**more: object) -> Keys:
    """Word starts with U+2581, continuations bare; single letters of both."""
    pieces = _pieces(random.Random(6))
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"]
    tokens = ["[PAD]", "<s>", "</s>", "<unk>", "[SEP]", "[MASK]", *pieces, *letters, *("▁" + c for c in letters)]
    tokens = list(dict.fromkeys(tokens))
    kinds = [3] * 6 + [1] * (len(tokens) - 6)
    return _keys("bert", tokens, kinds, seperator_token_id=4, **more)


def unigram(**more: object) -> Keys:
    """Log probabilities without ties that matter; unused and user-defined tokens; no character map."""
    rng = random.Random(8)
    pieces = [p for p in _pieces(rng) if p not in ("w", "世")]
    tokens = list(dict.fromkeys(["<pad>", "<s>", "</s>", "<unk>", *pieces, "<user>", "<unused>"]))
    kinds = [3, 3, 3, 2] + [1] * (len(tokens) - 6) + [4, 5]
    scores = np.array([-2.0 - 12 * rng.random() for _ in tokens], np.float32)
    return _keys("t5", tokens, kinds, scores=scores, **more)


ENDINGS: dict[str, list[str]] = {
    "all": sorted({*END_TEXTS, *ALWAYS_SHOWN, *(t for texts in ROLE_TEXTS.values() for t in texts[:1])}),
    "gpt-oss": ["<|return|>", "<|call|>", "<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|endoftext|>"],
    "solar": ["<|flush|>", "<|calls|>", "<|end|>", "<|endoftext|>"],
    "phi": ["<|end|>", "<|endoftext|>", "<|user|>"],
    "gemma4": ["<eos>", "<turn|>", "<|tool_response>"],
    "kimi": ["[EOS]", "[EOT]", "[PAD]", "[BOS]"],
    "qwen": ["<|endoftext|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"],
    "llama3": ["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|start_header_id|>"],
    "muse": ["<|eot|>", "<|eom|>", "<|start|>", "<|message|>", "<|end_of_text|>"],
}


def endings(name: str) -> Keys:
    """A tiny byte vocabulary with these special texts as control tokens, every third of them wrongly marked normal."""
    texts = [t for t in ENDINGS[name] if t != "</s>"]
    tokens = [*BYTE_ALPHABET, "<s>", "</s>", "<unk>", *texts]
    kinds = [1] * 256 + [3] * 3 + [1 if i % 3 == 2 else 3 for i in range(len(texts))]
    return _keys("gpt2", tokens, kinds, pre="gpt-2", merges=["a b"]) | {
        "tokenizer.ggml.tokens": [*tokens, "ab"],
        "tokenizer.ggml.token_type": np.array([*kinds, 1], np.int32),
    }


# name → keys, for the kinds other than byte pairs
OTHERS = {
    "spm": sentencepiece,
    "spm-no-prefix": lambda: sentencepiece(add_space_prefix=False, add_bos_token=False, add_eos_token=True),
    "spm-phi3": lambda: sentencepiece(**{"general.name": "Phi-3 mini"}),
    "bert": word_pieces,
    "bert-cased": lambda: word_pieces(**{"normalizer.lowercase": False}),
    "t5": lambda: unigram(add_space_prefix=True),
    "t5-merged-spaces": lambda: unigram(remove_extra_whitespaces=True),
    "t5-plain": unigram,
}
