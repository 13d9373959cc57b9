"""Texts that tokenizers get wrong, and a deterministic fuzz: what the goldens are made from and compared on."""

from __future__ import annotations

import random

TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\n\n\n",
    "\t\n",
    "\r\n",
    "\r\n\r\n \r\n",
    "Hello world",
    " Hello world",
    "Hello World  and   more    spaces",
    " Hello World!",
    "Hello, world! ",
    " this is 🦙.cpp",
    "w048 7tuijk dsdfhu",
    "нещо на Български",
    "កាន់តែពិសេសអាចខលចេញ",
    "🚀 (normal) 😶‍🌫️ (multiple emojis concatenated) ✅ (only emoji that has its own token)",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ❤️‍🔥",
    "Hello\n  Hello\n    Hello\n\tHello",
    "= ",
    " =",
    "\n =",
    "' era",
    "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
    "!!!!!!",
    "3",
    "33",
    "333",
    "3333",
    "33333",
    "333333",
    "3333333",
    "1234567890123456789012345678901234567890",
    "1,234,567.89 0x1F 1e-10 ½ ² ٣٤٥ ௧௨௩ 一二三 Ⅷ ①②③④",
    "I'm you're we'll they've he'd it's DON'T I'M YOU'RE IT'S o'clock 'tis 's'",
    "camelCase PascalCase snake_case SCREAMING_CASE HTTPServer iOS iPhone15Pro ÉcoleÀLa ßtraße ΣΊΣΥΦΟΣ",
    'def f(x: int) -> str:\n    if x>=0 and not x!=1:\n\t\treturn f"{x:>08}"  # comment\n\n\n',
    "for (int i = 0; i < n; ++i) { a[i] = b[i] << 2; }\r\n// done\r\n",
    '<html><body class="x">&nbsp;</body></html>',
    "SELECT * FROM `t` WHERE a <> 'it''s' AND b LIKE '%_%';",
    "https://example.com/path?query=1&b=2#frag user@example.org C:\\Windows\\System32",
    "العربية لغة جميلة، أليس كذلك؟ ١٢٣",
    "עברית שלום עולם",
    "हिन्दी में लिखा हुआ वाक्य। বাংলা ভাষা తెలుగు ไทยแลนด์ ภาษาไทย",
    "日本語のテキスト、カタカナとひらがな。「引用」漢字々〆",
    "한국어 텍스트입니다. ㄱㄴㄷ ㅏㅑ 조선말",
    "中文测试：你好，世界！　全角空格　ＡＢＣ１２３",
    "e\u0301 a\u0308 n\u0303 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319 é ä ñ \u0301alone",
    "zero\u200bwidth\u200cjoin\u200ders\ufeffbom\u00adsoft\u2060word",
    "nbsp\u00a0thin\u2009em\u2003ideographic\u3000line\u2028para\u2029next\x85vt\x0bff\x0c.",
    "control \x00\x01\x1b[31mred\x1b[0m \x7f",
    "🤷🏿‍♀️ \U0001f9ff \U000e0041\U000e007f \U0010ffff \ufffd \ue000",
    "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛 ℌ𝔢𝔩𝔩𝔬 ﬁ ﬂ ﷺ Ǆ ǅ ʰ ﾊﾝｶｸ",
    "“quotes” ‘single’ «guillemets» — em–dash… • bullets § ¶ † ‡ ₿ € £ ¥ © ® ™",
    "a" * 70 + " " + "A" * 70 + " " + "=" * 70 + " " + "-" * 33,
    " " * 40 + "x" + " " * 17 + "\n" + " " * 8 + "\n\n" + "\t" * 9 + "y",
    "x\n\n\n\n\ny\r\r\rz\n \n  \n\t\n",
    "Don't <|im_start|>user\nHi<|im_end|>\n<|endoftext|> </s><s>[INST] <bos> <eos>",
    "<|begin_of_text|><|eot_id|> <|start_header_id|>x<|end_header_id|>\n\n",
    "<start_of_turn>model\n<end_of_turn>\n<unused7> <mask>  <pad>\t<unk>",
    "<｜begin▁of▁sentence｜> <｜User｜> [PAD] [CLS] [SEP] [MASK]  <fim_prefix><|fim_suffix|>",
    "<|im_start <|im_start| <|<|im_start|>|> im_end|>",
    "<|system|>\n  You are  <|end|>\n<|user|>  \n<|assistant|>\t ok <0x0A> <0xFF>",
    "▁▁ ▁a▁b  ▁",
    "|2+2=4| a|b (x|y) f(a,b) … 。 ، ।",
    "IMGIMGABCDZ <sentinel:12> IMGIMGZ",
    "Việt Nam Đặng Ước mơ ỡ; Türkçe İstanbul ıI; Čeština příliš žluťoučký kůň; Łódź",
    "naïve café résumé Ångström ŒUVRE œuvre Æsir ǣ Ⓐ ⓑ",
    " \u0301\u0302 x\u0301\u0302y .\u0301. 1\u03012",
    "123abc456 abc123def 12-34-56 1.2.3 v2.0.1-rc1 10% $5.00 #42 @7",
    "mixed 数字123和ABC文字。Next句子！",
    "ᄀᆞ ᅟᅠ ꡀ ꓐ ꠀ 𑣟𞤀 ℂℕ ℲↃ ꭰ ﬀ",
]

_POOLS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " ",
    " \t\n\r",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    "'sStTrReEvVmMlLdD",
    "äöüßéèñçøåÀÉÎÕÜ",
    "αβγδΣΩабвгдЖЩЯ",
    "一丁七万丈三上下不与丐丑专且世",
    "あいうえおアイウエオー々",
    "가나다라마ㄱㄴㅏ",
    "ابتثجحخ٠١٢٣",
    "कखगघ\u093e\u093f\u0940\u094d०१२",
    "\u0300\u0301\u0302\u0308\u20d7\ufe0f",
    "🙂🚀🦙\u200d🏽❤\ufe0f",
    "\u00a0\u2003\u3000\u2028\x85\x0b\x0c",
    "\u200b\u200c\ufeff\u00ad",
    "½²Ⅷ①٣௧𝟙",
    "…—–“”‘’«»€£©™°",
)


def fuzz(count: int, seed: int = 7) -> list[str]:
    """`count` texts of up to 60 characters: runs from the pools, with a few characters from anywhere in Unicode."""
    rng = random.Random(seed)
    return [_one(rng) for _ in range(count)]


def _one(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randint(1, 12)):
        if rng.random() < 0.08:
            parts.append(chr(rng.choice((rng.randrange(0x20, 0x3000), rng.randrange(0x3000, 0xD800)))))
        else:
            pool = rng.choice(_POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 6))))
    return "".join(parts)
