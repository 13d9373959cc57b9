"""Formats in which every part of an answer is a message with a header: a row each, in the words of the models."""

from __future__ import annotations

from tensormill.chat.parse.formats import Arguments, CallMark, Format, Mark, Parameters, Section, Writing

_KIND = "{?{_}{word}}{? <|constrain|>{word}}"
HARMONY = Format(  # gpt-oss
    "harmony",
    marks=(
        Mark("{?<|start|>{word}}<|channel|>analysis" + _KIND + "<|message|>", "reasoning"),
        Mark("{?<|start|>{word}}<|channel|>{word}" + _KIND + "<|message|>", "content"),
        Mark("<|start|>{word}<|message|>", "content"),
        Mark("<|end|>", "content"),
        Mark("<|return|>", "content"),
    ),
    calls=(
        CallMark("{?<|start|>{word}}<|channel|>{word} to={?functions.}{name}" + _KIND + "<|message|>", Arguments()),
        CallMark("<|start|>{word} to={?functions.}{name}<|channel|>{word}" + _KIND + "<|message|>", Arguments()),
        CallMark(" to={?functions.}{name}<|channel|>{word}" + _KIND + "<|message|>", Arguments(), start=True),
    ),
    drops=("<|call|>", "<|end|>"),
    keeps=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"),
    header="<|start|>",
    writing=Writing("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", "<|call|>"),
)
MUSE = Format(  # Muse Glimmer, Muse Spark: ATEM inside messages with recipients
    "muse",
    marks=(
        Mark("{?<|eom|>}{?<|start|>{word}} to=self<|message|>", "reasoning"),
        Mark("{?<|eom|>}{?<|start|>{word}} to={name}<|message|>", "content"),
        Mark("{?<|eom|>}<|start|>{word}<|message|>", "content"),
        Mark("<|eom|>", "content"),
        Mark("<|eot|>", "content"),
    ),
    sections=(Section(" <atem:function_calls>", " </atem:function_calls>"),),
    calls=(
        CallMark(
            ' <atem:invoke name="{name}" >',
            Parameters(' <atem:parameter name="{key}" >', ("</atem:parameter>",), (" </atem:invoke>",)),
            alone=False,
        ),
    ),
    keeps=("<|start|>", "<|message|>", "<|eom|>"),
    header="<|start|>",
    writing=Writing(
        '<atem:invoke name="{name}">\n', "\n</atem:invoke>", between="\n",
        opens="<atem:function_calls>\n", closes="\n</atem:function_calls>",
        parameter=('<atem:parameter name="{key}">', "</atem:parameter>", "\n"),
    ),
)  # fmt: skip

KIMI_K3 = Format(
    "kimi-k3",
    marks=(
        Mark("<|open|>think<|sep|>", "reasoning"),
        Mark("<|close|>think<|sep|>", "content"),
        Mark("<|open|>response<|sep|>", "content"),
        Mark("<|close|>response<|sep|>", "content"),
        Mark("<|close|>message<|sep|>", "content"),
    ),
    sections=(Section("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),),
    calls=(
        CallMark(
            '<|open|>call tool="{name}"{? index="{number}"}<|sep|>',
            Parameters(
                '<|open|>argument key="{key}"{? type="{flag}"}<|sep|>', ("<|close|>argument<|sep|>",), ("<|close|>call<|sep|>",)
            ),
            alone=False,
        ),
    ),
    keeps=("<|open|>", "<|close|>", "<|sep|>"),
    thinks=("<|open|>think<|sep|>",),
    writing=Writing(
        '<|open|>call tool="{name}" index="{number}"<|sep|>', "<|close|>call<|sep|>",
        opens="<|open|>tools<|sep|>", closes="<|close|>tools<|sep|>",
        parameter=('<|open|>argument key="{key}" type="{type}"<|sep|>', "<|close|>argument<|sep|>", ""),
    ),
)  # fmt: skip
SOLAR = Format(  # Solar Open
    "solar",
    marks=(
        Mark("{?<|begin|>{word}}<|think|>", "reasoning"),
        Mark("{?<|begin|>{word}}<|content|>", "content"),
        Mark("<|end|>", "content"),
    ),
    sections=(Section("{?<|begin|>{word}}<|tool_calls|>", "<|calls|>"),),
    calls=(CallMark("<|tool_call:begin|> {id} <|tool_call:name|> {name} <|tool_call:args|> {!{}", Arguments()),),
    drops=("<|tool_call:end|>",),
    keeps=(
        "<|begin|>", "<|end|>", "<|think|>", "<|content|>", "<|tool_calls|>", "<|calls|>", "<|tool_call:begin|>",
        "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>",
    ),
    header="<|begin|>",
    thinks=("<|think|>",),
    writing=Writing(
        "<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>", "<|tool_call:end|>",
        opens="<|tool_calls|>", closes="<|calls|>",
    ),
)  # fmt: skip
