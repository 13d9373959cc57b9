"""The chat formats that are understood, and by which words of a template each is known.

To add one, write a row in the file of its kind (JSON, tags, messages) and name it here.
"""

from __future__ import annotations

from tensormill.chat.parse import rows_json as j
from tensormill.chat.parse import rows_messages as m
from tensormill.chat.parse import rows_tags as t
from tensormill.chat.parse.formats import Format

_FINGERPRINTS: tuple[tuple[Format, tuple[tuple[str, ...], ...]], ...] = (  # any of these groups, all of a group
    (m.HARMONY, (("<|channel|>", "<|message|>"),)),
    (m.MUSE, (("<atem:",), ("<|start|>", "<|message|>", "<|eot|>"))),
    (m.KIMI_K3, (("<|open|>", "<|close|>", "<|sep|>"),)),
    (m.SOLAR, (("<|tool_call:begin|>",),)),
    (j.GEMMA4, (("<|tool_call>",), ("<|channel>",), ("<|turn>",))),
    (t.DSML, (("｜DSML｜",),)),
    (j.DEEPSEEK, (("<｜tool▁call",), ("<｜Assistant｜>",))),
    (j.KIMI, (("<|tool_calls_section_begin|>",), ("<|tool_call_begin|>",), ("◁think▷",))),
    (t.MINIMAX_M3, (("]<]minimax[>[",),)),
    (t.MINIMAX, (("<minimax:tool_call>",),)),
    (j.MISTRAL, (("[TOOL_CALLS]",), ("[THINK]",))),
    (t.HUNYUAN, ((":opensource",),)),
    (t.GLM, (("<arg_key>",),)),
    (t.SEED, (("<seed:tool_call>",), ("<seed:think>",))),
    (t.QWEN_XML, (("<function=", "<parameter="),)),
    (t.MINICPM, (('<function name="', '<param name="'),)),
    (j.NEMOTRON, (("<TOOLCALL>",),)),
    (j.COMMAND, (("<|START_ACTION|>",), ("<|START_THINKING|>",))),
    (j.LFM2, (("<|tool_call_start|>",), ("<|tool_list_start|>",), ("List of tools: ", "<|im_start|>"))),
    (j.GIGACHAT, (("<|function_call|>",), ("<|role_sep|>", "function call"))),
    (j.TOOL_CALLS, (("<tool_calls>",),)),
    (j.HERMES, (("<tool_call>",),)),
    (j.GRANITE, (("<|tool_call|>",),)),
    (j.LLAMA3, (("<|python_tag|>",), ("<|start_header_id|>",), ("<|header_start|>",))),
    (j.THINKER, (("<think>",), ("</think>",))),
)

FORMATS: dict[str, Format] = {form.name: form for form in (*(f for f, _ in _FINGERPRINTS), j.PLAIN)}


def choose(template: str) -> Format:
    """The format whose markers are in a chat template's text; `plain` if there are none."""
    for form, groups in _FINGERPRINTS:
        if any(all(marker in template for marker in group) for group in groups):
            return form
    return j.PLAIN
