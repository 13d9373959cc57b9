"""Formats in which arguments are JSON (or nearly): a row each, in the words of the models."""

from __future__ import annotations

from dataclasses import replace

from tensormill.chat.parse.formats import Arguments, CallMark, Format, Loose, Mark, NamedObject, Pythonic, Section, Writing
from tensormill.chat.parse.thinking import THINK, THINK_TOKENS

_NAMED = '{"name": "{name}", "arguments": '

HERMES = Format(  # Qwen2.5, Qwen3, Hermes, and most models that follow them
    "hermes",
    marks=THINK,
    sections=(Section(" <tool_call>", " </tool_call>"),),
    calls=(
        CallMark("{!{}", NamedObject(), alone=False),
        CallMark(" ```{?json} {!{}", NamedObject(strict=True), start=True, known=True),  # small models forget the tags
        CallMark(" {!{}", NamedObject(strict=True), start=True, known=True),
    ),
    drops=("```",),
    fill="[],;}",
    keeps=("<tool_call>", "</tool_call>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing("<tool_call>\n" + _NAMED, "}\n</tool_call>", between="\n"),
)
# What templates that know no tools leave open is read as HERMES is: `telling.py` asks the model for it.
THINKER = replace(HERMES, name="think", keeps=THINK_TOKENS)
PLAIN = replace(HERMES, name="plain", marks=(), keeps=(), thinks=())
LLAMA3 = Format(
    "llama3",
    marks=THINK,
    sections=(Section(" <|python_tag|>"),),
    calls=(
        CallMark(" {!{}", NamedObject(strict=True), start=True, known=True),
        CallMark(" <function={name}>{!{}", Arguments()),
    ),
    drops=("</function>", "<|eom_id|>", "<|eot_id|>"),
    fill=";,[]",
    keeps=("<|python_tag|>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing('{"name": "{name}", "parameters": ', "}", between="; "),
)
MISTRAL = Format(
    "mistral",
    marks=(Mark(" [THINK]", "reasoning"), Mark(" [/THINK]", "content"), *THINK),
    sections=(Section(" [TOOL_CALLS] {![{}"),),
    calls=(
        CallMark(" [TOOL_CALLS] {name}{?[CALL_ID] {id}}{? [ARGS]} {!{}", Arguments()),
        CallMark("{!{}", NamedObject(), alone=False),
    ),
    fill="[],",
    keeps=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
    ids="nine",
    thinks=("[THINK]", "<think>"),
    writing=Writing("[TOOL_CALLS]{name}[ARGS]"),
)
DEEPSEEK = Format(  # V3, R1, V3.1; two ways to write a call
    "deepseek",
    marks=THINK,
    sections=(Section(" <｜tool▁calls▁begin｜>", " <｜tool▁calls▁end｜>"),),
    calls=(
        CallMark(" <｜tool▁call▁begin｜> function<｜tool▁sep｜>{name} ```json {!{}", Arguments()),
        CallMark(" <｜tool▁call▁begin｜> {name} <｜tool▁sep｜> {!{}", Arguments()),
    ),
    drops=("```", "<｜tool▁call▁end｜>"),
    keeps=(
        "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
        *THINK_TOKENS,
    ),
    thinks=("<think>",),
    writing=Writing(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
        opens="<｜tool▁calls▁begin｜>", closes="<｜tool▁calls▁end｜>",
    ),
)  # fmt: skip
GEMMA4 = Format(
    "gemma4",
    marks=(Mark(" <|channel>thought", "reasoning"), Mark(" <channel|>", "content"), Mark(" <turn|>", "content")),
    calls=(CallMark(" <|tool_call> call:{name} {!{}", Loose('<|"|>')),),
    drops=("<tool_call|>", "<|tool_response>"),
    keeps=("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
    thinks=("<|channel>thought",),
    writing=Writing("<|tool_call>call:{name}", "<tool_call|>", quote='<|"|>'),
)
KIMI = Format(
    "kimi",
    marks=(*THINK, Mark(" ◁think▷", "reasoning", start=True), Mark(" ◁/think▷", "content", within="reasoning")),
    sections=(Section(" <|tool_calls_section_begin|>", " <|tool_calls_section_end|>"),),
    calls=(
        CallMark(" <|tool_call_begin|> {id={?functions.}{name}{?:{number}}} <|tool_call_argument_begin|> {!{}", Arguments()),
    ),
    drops=("<|tool_call_end|>",),
    keeps=(
        "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
        "<|tool_call_end|>", "◁think▷", "◁/think▷", *THINK_TOKENS,
    ),
    thinks=("<think>", "◁think▷"),
    writing=Writing(
        "<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>", "<|tool_call_end|>",
        opens="<|tool_calls_section_begin|>", closes="<|tool_calls_section_end|>",
    ),
)  # fmt: skip
NEMOTRON = Format(
    "nemotron",
    marks=THINK,
    sections=(Section(" <TOOLCALL>", " </TOOLCALL>"),),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    fill="[],;}",
    keeps=("<TOOLCALL>", "</TOOLCALL>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(_NAMED, "}", between=", ", opens="<TOOLCALL>[", closes="]</TOOLCALL>"),
)
GRANITE = Format(  # Granite, Phi-4-mini
    "granite",
    marks=THINK,
    sections=(Section(" <|tool_call|>", " <|/tool_call|>"),),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    fill="[],;}",
    keeps=("<|tool_call|>", "<|/tool_call|>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(_NAMED, "}", between=", ", opens="<|tool_call|>[", closes="]"),
)
COMMAND = Format(  # Command R7B, Command A
    "command",
    marks=(
        Mark(" <|START_THINKING|>", "reasoning"),
        Mark(" <|END_THINKING|>", "content"),
        Mark(" <|START_RESPONSE|>", "content"),
        Mark(" <|END_RESPONSE|>", "content"),
        Mark(" <|START_TEXT|>", "content"),
        Mark(" <|END_TEXT|>", "content"),
    ),
    sections=(Section(" <|START_ACTION|>", " <|END_ACTION|>"),),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    fill="[],;}",
    keeps=(
        "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_ACTION|>",
        "<|END_ACTION|>", "<|START_TEXT|>", "<|END_TEXT|>",
    ),
    thinks=("<|START_THINKING|>",),
    writing=Writing(
        '{"tool_call_id": "{number}", "tool_name": "{name}", "parameters": ', "}", between=", ",
        opens="<|START_ACTION|>[", closes="]<|END_ACTION|>",
    ),
)  # fmt: skip

TOOL_CALLS = Format(  # MiniMax M1, Apriel
    "tool-calls",
    marks=THINK,
    sections=(Section(" <tool_calls>", " </tool_calls>"),),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    fill="[],;}",
    keeps=("<tool_calls>", "</tool_calls>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(_NAMED, "}", between="\n", opens="<tool_calls>\n", closes="\n</tool_calls>"),
)
GIGACHAT = Format(  # GigaChat 3, 3.1
    "gigachat",
    sections=(Section("{?<|message_sep|>} function call<|role_sep|>"), Section(" <|function_call|>")),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    drops=("<|message_sep|>",),
    keeps=("<|message_sep|>", "<|role_sep|>", "<|function_call|>"),
    writing=Writing("<|function_call|>" + _NAMED, "}<|message_sep|>"),
)
LFM2 = Format(  # calls as in Python
    "lfm2",
    marks=THINK,
    sections=(Section(" <|tool_call_start|>", " <|tool_call_end|>"),),
    calls=(CallMark("{name}({!)abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_}", Pythonic(), alone=False),),
    fill="[],",
    keeps=("<|tool_call_start|>", "<|tool_call_end|>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing("{name}(", ")", between=", ", opens="<|tool_call_start|>[", closes="]<|tool_call_end|>", python=True),
)
