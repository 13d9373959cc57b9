"""Which tokens end an answer, and which kinds the file gets wrong: decided by token text, since files seldom say.

The lists are llama.cpp's, so that the same file stops at the same places; where several texts of one role exist, the
first of the list is taken (there: whichever its hash table meets first).
"""

from __future__ import annotations

from tensormill.tokenizer.vocab import Kind, Vocab

ROLE_TEXTS: dict[str, tuple[str, ...]] = {
    "eot": (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ),
    "eom": ("<|eom_id|>",),
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
        "<|plamo:fim_prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
        "<|plamo:fim_suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
        "<|plamo:fim_middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>", "<|plamo:file_separator|>"),
}
END_TEXTS = [
    "<|eot_id|>",
    "<|eot|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|ifm|im_end|>",
]
ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")  # an answer's structure, not its end
STRUCTURE = frozenset((*ALWAYS_SHOWN, "<|end|>"))  # control tokens by nature, though some of them are made user-defined below


def settle(vocab: Vocab) -> frozenset[int]:
    """Fill in `vocab.ids` by text, correct `vocab.kinds` in place, and return the ids that end an answer."""
    for role, texts in ROLE_TEXTS.items():
        if vocab.ids[role] is None:
            found = next((vocab.index[t] for t in texts if t in vocab.index), None)
            if found is not None:
                vocab.ids[role] = found
                vocab.kinds[found] = Kind.CONTROL
    ends = {i for role in ("fim_pad", "fim_rep", "fim_sep") if (i := vocab.ids[role]) is not None}
    by_text = {vocab.index[t] for t in END_TEXTS if t in vocab.index}
    for token in by_text:
        vocab.kinds[token] = Kind.CONTROL
    for text in ALWAYS_SHOWN:
        if text in vocab.index:
            vocab.kinds[vocab.index[text]] = Kind.USER_DEFINED
    ends |= by_text | {i for role in ("eos", "eot", "eom") if (i := vocab.ids[role]) is not None}
    return frozenset(_without_continuations(vocab, ends))


def _without_continuations(vocab: Vocab, ends: set[int]) -> set[int]:
    """Drop the look-alikes: tokens that end a message, while the answer goes on, in vocabularies that have a real end."""
    texts = {vocab.tokens[i]: i for i in ends}
    calls = "<|call|>" in texts or "<|calls|>" in texts
    if "<|end|>" in texts and calls and ("<|return|>" in texts or "<|flush|>" in texts):  # gpt-oss, Solar
        ends.discard(texts["<|end|>"])
        vocab.kinds[texts["<|end|>"]] = Kind.USER_DEFINED
    if "</s>" in texts and ("<|tool_response>" in texts or "<|plamo:eos|>" in texts):  # Gemma 4: an HTML tag
        ends.discard(texts["</s>"])
        vocab.kinds[texts["</s>"]] = Kind.NORMAL
    if "<|eom|>" in texts and "<|eot|>" in texts and "<|message|>" in vocab.index:  # Muse: the next message follows
        ends.discard(texts["<|eom|>"])
    return ends
