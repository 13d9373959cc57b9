"""Pre-tokenizer families: how a byte-pair vocabulary cuts text into words before any merge.

One table from the file's `tokenizer.ggml.pre` name to its rules, as llama.cpp applies them (ids must be its ids, so
where it departs from a model's original regex, so do we: its `\\p{Lu}`, `\\p{Ll}` … all mean "letter").
This only describes; `split.py` cuts. Expressions are in Oniguruma syntax, each applied inside the pieces of the one before.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensormill.errors import TokenizerError
from tensormill.tokenizer.words import characters

THOUSANDS = "thousands"  # not a regex: runs of \p{N} cut in threes from the right
THOUSANDS_ASCII = "thousands-ascii"  # the same, for runs of 0-9 inside a piece
METASPACE = "metaspace"  # every word starts with U+2581, lines apart

_CONTRACTION = "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHER = r" ?[^\s\p{L}\p{N}]+"
_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\p{{L}}+| ?\p{{N}}+|{_OTHER}|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_OTHER}[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_OTHER}[\r\n]*|{_SPACES}"
_QWEN35 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_LINES = r"[^\n]+|\n+"


def _cased(letter: str, ending: str, digits: str) -> str:
    """Runs of "not lower-case ASCII" then "not upper-case ASCII" letters: camelCase falls apart at its humps."""
    upper, lower = rf"(?:(?![a-z]){letter})", rf"(?:(?![A-Z]){letter})"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return rf"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}|{digits}|{_OTHER}[\r\n/]*|{_SPACES}"


_PUNCTUATED_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
_DEEPSEEK3 = rf"{_PUNCTUATED_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"


_CJK = f"[{characters('4e00-9fa5 3040-309f 30a0-30ff')}]+"
_CJK_HANGUL = rf"(?:(?!\s)[{characters('4e00-9fa5 800-4e00 ac00-d7ff')}])+"  # U+3000 and kin are white space first
_CJK_MARKS = characters("ff01 2026 201c 201d 2018 2019 2014 ff1a ff1b ff0c 3001-303f fe30-fe4f")
_HAN = characters("4e00-9fff 3400-4dbf 20000-2a6df 2a700-2b73f 2b740-2b81f 2b820-2ceaf 2ceb0-2ebef f900-faff 2f800-2fa1f")
_ASIAN = characters(
    "4e00-9fff 3400-4dbf 8c48-faff 3040-309f 30a0-30ff ff65-ff9f 2f00-2fdf e40-e7f e80-eff 1780-17ff 1000-109f "
    "aa60-aa7f a9e0-a9ff ac00-d7af 1100-11ff"
)
_LETTERS_DEEPSEEK = characters(
    "41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c "
    "38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b "
    "1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 "
    "1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 "
    "2115 2119-211d 2124 2126 2128 212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b "
    "2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 "
    "fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df "
    "1e900-1e943"
)
# llama.cpp sees U+3000 as white space before it sees this class, hence 3001
_MARKS_DEEPSEEK = characters("21-2f 3a-7e ff01-ff0f ff1a-ff5e 2018-201f 3001-3002")
_BLOOM = rf" ?[^(\s|.,!?){characters('2026 3002 ff0c 3001 964 6d4 60c')}]+"


@dataclass(frozen=True)
class Family:
    """Rules that a pre-tokenizer name stands for.

    `stages`: regexes or stage names, in order. `ignore_merges`: a word that is a token needs no merging. `add_bos`: default
    when the file has no `add_bos_token`. `byte_level`: text goes through GPT-2's byte alphabet; else raw UTF-8 with
    `<0xXX>` fallback. `spaces_escaped`: " " is written U+2581 in tokens. `whole_newlines`: a run of newlines that is a
    token needs no merging. `force_bos`: BOS even when the file says no. `no_bos`: no default BOS id.
    """

    stages: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    byte_level: bool = True
    spaces_escaped: bool = False
    whole_newlines: bool = False
    force_bos: bool = False
    no_bos: bool = False


_gpt2 = Family((_GPT2,))
_digitwise = Family((r"\p{N}", _GPT2))
_llama3 = Family((_LLAMA3,), ignore_merges=True, add_bos=True)
_qwen2 = Family((_QWEN2,))
_gpt4o = Family((_cased(r"\p{L}", f"(?:{_CONTRACTION})?", r"\p{N}{1,3}"),))
_deepseek3 = Family((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))
_lines = Family((_LINES,), byte_level=False, spaces_escaped=True)
_bloom = Family((_BLOOM,))
_marked = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+(?:{_CONTRACTION})?"  # what llama.cpp makes of a cased class with \p{M}
_bailing = Family((rf"{_CONTRACTION}|{_WORD}|\p{{N}}|{_OTHER}[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",))
_aya = Family((THOUSANDS, rf"{_marked}|\p{{N}}{{1,3}}|{_OTHER}[\r\n/]*|{_SPACES}"))

FAMILIES: dict[str, Family] = {
    "default": Family((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(
        ["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        _llama3,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), Family((_LLAMA3,))),
    "chatglm-bpe": Family((_LLAMA3,), no_bos=True),
    **dict.fromkeys(("glm4", "glm5"), Family((_LLAMA3,), ignore_merges=True, no_bos=True)),
    **dict.fromkeys(
        [
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "jina-v1-en",
            "roberta-bpe",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        _gpt2,
    ),
    **dict.fromkeys(
        ["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        _digitwise,
    ),
    **dict.fromkeys(
        ["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"],
        _qwen2,
    ),
    "qwen35": Family((_QWEN35,)),
    **dict.fromkeys(["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], _gpt4o),
    "granite-embed-multi-97m": Family((_cased(r"[\p{L}\p{M}]", f"(?:{_CONTRACTION})?", r"\p{N}{1,3}"),), ignore_merges=True),
    "tekken": Family((_cased(r"\p{L}", "", r"\p{N}"),), ignore_merges=True, add_bos=True),
    "deepseek-llm": Family(
        (
            r"[\r\n]",
            rf"\s?[{_LETTERS_DEEPSEEK}]+",
            rf"\s?[{_MARKS_DEEPSEEK}]+",
            r"\s+\z",
            _CJK_HANGUL,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": Family((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_HANGUL, r"\p{N}")),
    **dict.fromkeys(["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], _deepseek3),
    "spark2_5": Family(
        (
            r"\p{N}{1,3}",
            _CJK,
            rf"{_PUNCTUATED_WORD}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
            r"\p{N}",
        )
    ),
    "youtu": Family(
        (
            f"[{characters('ac00-d7a3 3131-318e')}]+|[{_CJK_MARKS}]+|[{characters('3105-312f')}]+|{_CJK}",
            rf"{_marked}|\p{{N}}|{_OTHER}[\r\n/]*|{_SPACES}",
        ),
        ignore_merges=True,
    ),
    "falcon": Family((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    **dict.fromkeys(["bloom", "poro-chat", "gpt3-finnish"], _bloom),
    "viking": Family((_BLOOM, r"\p{N}")),
    "chameleon": Family(
        (
            "<sentinel:[0-9]+>",
            "(?:IMGIMG)[A-I]{1,4}Z",
            r"[\t\n]|    |  ",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2,
        ),
        add_bos=True,
    ),
    "superbpe": Family((r"\p{N}+", THOUSANDS_ASCII)),
    **dict.fromkeys(["bailingmoe", "bailingmoe2", "llada-moe"], _bailing),
    "seed-coder": Family((rf"{_CONTRACTION}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    "minicpm5": Family((r"\p{N}{1,3}", rf"{_CONTRACTION}|{_WORD}|\p{{N}}+|{_OTHER}[\r\n]*|{_SPACES}"), ignore_merges=True),
    "jais-2": Family(
        (
            rf"{_CONTRACTION}|{_WORD}|\p{{N}}{{1,3}}|{_OTHER}[\r\n]*|\s*[\r\n]+|"
            + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
            + r"|\s{1,2}(?!\S)|\s",
        )
    ),
    "ufakzeka": Family((rf"{_WORD}|\p{{N}}|{_OTHER}[\r\n]*|{_SPACES}",)),
    "afmoe": Family((THOUSANDS, f"[{_ASIAN}]+", _DEEPSEEK3)),
    "laguna": Family((_LINES, _QWEN2)),
    "exaone-moe": Family(
        (
            rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
            rf"{_OTHER}[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), _aya),
    "kimi-k2": Family(
        (
            rf"[{_HAN}]+|[^\r\n\p{{L}}\p{{N}}]?(?:(?![{_HAN}])\p{{L}})+(?:{_CONTRACTION})?|\p{{N}}{{1,3}}|"
            rf"{_OTHER}[\r\n]*|{_SPACES}",
        )
    ),
    **dict.fromkeys(("gemma4", "granite-embed-multi-311m"), replace(_lines, whole_newlines=True, force_bos=True)),
    "mmbert": replace(_lines, stages=(_LINES, METASPACE), whole_newlines=True),
    "sarvam-moe": _lines,
    "whitespace": Family((r"\S+",), byte_level=False),
}


def family(name: str) -> Family:
    """The rules of a pre-tokenizer name; an unknown one raises TokenizerError with the nearest known names."""
    known = FAMILIES.get(name)
    if known is not None:
        return known
    near = difflib.get_close_matches(name, FAMILIES, n=4, cutoff=0.4)
    hint = f"near names: {', '.join(near)}" if near else f"known names: {', '.join(sorted(FAMILIES))}"
    raise TokenizerError(
        f"unknown pre-tokenizer {name!r} (tokenizer.ggml.pre); {hint}. "
        "If you know which one this model shares, say so with --pre NAME."
    )


def stages_in_use() -> Iterator[tuple[str, Family]]:
    """One (name, family) for each distinct set of rules: what a test has to cover."""
    seen: set[Family] = set()
    for name, rules in FAMILIES.items():
        if rules not in seen:
            seen.add(rules)
            yield name, rules
