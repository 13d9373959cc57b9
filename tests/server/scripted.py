"""A model that says what a script says: real files, engine and server, but words that a test knows beforehand.

It is a llama whose one block adds nothing, so that each token alone decides the next. The template chooses where the script
begins, by a token at the end of the prompt: <|go:call|> where there are tools, <|go:answer|> behind a result, and so on.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from models.tiny import Tiny
from tensormill.gguf import GGUFWriter
from unit.cli_driver import byte_tokens

END = "<|im_end|>"
CONTEXT = 8192  # an answer that fills it takes a second: time to do something meanwhile
_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": '
SCRIPT = (
    ("<|go:say|>", "Hello", " there,", " my friend", "…!", END),
    ("<|go:think|>", "<think>\n", "The user", " greets me.", "\n</think>\n\n", "Good day!", END),
    ("<|go:call|>", "I look.\n", _CALL, '"Par', 'is"}}\n</tool_call>', END),
    ("<|go:two|>", _CALL + '"Oslo"}}\n</tool_call>', "\n" + _CALL + '"Rome"}}\n</tool_call>', END),
    ("<|go:answer|>", "It is ", "18 degrees", " in Paris!", END),
    ("<|go:quiet|>", "No tools", " today.", END),
)
HABITS = (("t", "o"),)  # where "<t" is all that a grammar lets through: <tool_call>, not <think>
TEMPLATE = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}<|im_start|>assistant
{% if messages[-1].role == 'tool' %}<|go:answer|>
{%- elif tools and 'both' in messages[-1].content %}<|go:two|>
{%- elif tools and 'quiet' in messages[-1].content %}<|go:quiet|>
{%- elif tools %}<|go:call|>
{%- elif enable_thinking is defined and enable_thinking %}<|go:think|>
{%- else %}<|go:say|>{% endif %}"""


def write_scripted(path: Path, template: str = TEMPLATE) -> Path:
    """The model's file."""
    words = [w for w in dict.fromkeys(w for line in SCRIPT for w in line) if w != END]
    tokens = [*byte_tokens(), "Ġa", "<|endoftext|>", "<|im_start|>", END, *words]
    tiny = Tiny("llama", 3, V=len(tokens), L=1, D=256)
    tiny.start(rope__freq_base=10000.0, context_length=CONTEXT)
    tiny.attention("blk.0.")
    tiny.ffn("blk.0.")
    tiny.end()
    for name in ("blk.0.attn_output.weight", "blk.0.ffn_down.weight"):
        tiny.tensors[name][:] = 0
    tiny.tensors["output_norm.weight"][:] = 1
    tiny.tensors["output.weight"] = _successors(tokens, tiny.tensors["token_embd.weight"])
    kinds = [3 if w.startswith("<|") else 4 for w in tokens[257:]]
    writer = GGUFWriter(path)
    for key, value in {
        "general.architecture": "llama",
        "general.name": "scripted",
        "tokenizer.chat_template": template,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [*[1] * 257, *kinds],
        "tokenizer.ggml.merges": ["Ġ a"],
        "tokenizer.ggml.bos_token_id": 257,
        "tokenizer.ggml.eos_token_id": 259,
        "tokenizer.ggml.add_bos_token": False,
        **tiny.keys,
    }.items():
        writer.add(key, value)
    for name, data in tiny.tensors.items():
        writer.add_tensor(name, data)
    writer.write()
    return path


def _successors(tokens: list[str], embedding: np.ndarray) -> np.ndarray:
    """The output matrix under which a word's successor in the script is by far the likeliest token."""
    out = np.zeros_like(embedding)
    for line in (*SCRIPT, *HABITS):
        for word, after in pairwise(line):
            row = embedding[tokens.index(word)]
            out[tokens.index(after)] += 8 * row / np.linalg.norm(row)
    return out
