"""The chat formats that are understood: a row each, in the words of the models.

To add one, write a row, and say in `_FINGERPRINTS` by which words of a template it is known.
"""

from __future__ import annotations

from tensormill.chat.parse.formats import Arguments, CallMark, Format, Loose, Mark, NamedObject, Parameters, Section, Writing

THINK = (
    Mark(" <think>", "reasoning", start=True),
    Mark(" </think>", "content", within="reasoning"),
)
THINK_TOKENS = ("<think>", "</think>")
_NAMED = '{"name": "{name}", "arguments": '

HERMES = Format(  # Qwen2.5, Qwen3, Hermes, and most models that follow them
    "hermes",
    marks=THINK,
    sections=(Section(" <tool_call>", " </tool_call>"),),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    fill="[],;}",
    keeps=("<tool_call>", "</tool_call>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing("<tool_call>\n" + _NAMED, "}\n</tool_call>", between="\n"),
)
QWEN_XML = Format(  # Qwen3-Coder, Qwen3.5, Nemotron 3
    "qwen-xml",
    marks=THINK,
    sections=(Section(" <tool_call>", " </tool_call>"),),
    calls=(
        CallMark(
            " <function={name}>",
            Parameters(" <parameter={key}>", ("</parameter>",), (" </function>", " </tool_call>"), line=True),
        ),
        CallMark("{!{}", NamedObject(), alone=False),
    ),
    fill="}",
    keeps=("<tool_call>", "</tool_call>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(
        "<tool_call>\n<function={name}>\n",
        "\n</function>\n</tool_call>",
        between="\n",
        parameter=("<parameter={key}>\n", "\n</parameter>", "\n"),
    ),
)
SEED = Format(
    "seed",
    marks=(Mark(" <seed:think>", "reasoning", start=True), Mark(" </seed:think>", "content", within="reasoning")),
    sections=(Section(" <seed:tool_call>", " </seed:tool_call>"),),
    calls=(
        CallMark(
            " <function={name}>",
            Parameters(" <parameter={key}>", ("</parameter>",), (" </function>", " </seed:tool_call>"), line=True),
        ),
    ),
    keeps=("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"),
    thinks=("<seed:think>",),
    writing=Writing(
        "<seed:tool_call>\n<function={name}>\n",
        "\n</function>\n</seed:tool_call>",
        between="\n",
        parameter=("<parameter={key}>", "</parameter>", "\n"),
    ),
)
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
DSML = Format(  # DeepSeek V3.2, V4, V4.1 (spaced)
    "dsml",
    marks=THINK,
    sections=tuple(
        Section(f" <｜DSML｜ {word}>", f" </｜DSML｜ {word}>") for word in ("function_calls", "tool_calls", "calls")
    ),
    calls=(
        CallMark(
            ' <｜DSML｜ invoke name="{name}" >',
            Parameters(
                ' <｜DSML｜ parameter name="{key}"{? string="{flag}"} >',
                ("</｜DSML｜parameter>", "</｜DSML｜ parameter>"),
                (" </｜DSML｜ invoke>",),
            ),
            alone=False,
        ),
    ),
    keeps=("｜DSML｜", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(
        '<｜DSML｜invoke name="{name}">\n', "\n</｜DSML｜invoke>", between="\n",
        opens="<｜DSML｜function_calls>\n", closes="\n</｜DSML｜function_calls>",
        parameter=('<｜DSML｜parameter name="{key}" string="{flag}">', "</｜DSML｜parameter>", "\n"),
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
GLM = Format(
    "glm",
    marks=THINK,
    calls=(
        CallMark(
            " <tool_call> {name} {!<}",
            Parameters(" <arg_key> {key}</arg_key> <arg_value>", ("</arg_value>",), (" </tool_call>",)),
        ),
    ),
    keeps=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(
        "<tool_call>{name}\n", "\n</tool_call>", between="\n",
        parameter=("<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>", "\n"),
    ),
)  # fmt: skip
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
MINIMAX = Format(
    "minimax",
    marks=THINK,
    sections=(Section(" <minimax:tool_call>", " </minimax:tool_call>"),),
    calls=(
        CallMark(
            ' <invoke name="{name}" >',
            Parameters(' <parameter name="{key}" >', ("</parameter>",), (" </invoke>",)),
            alone=False,
        ),
    ),
    keeps=("<minimax:tool_call>", "</minimax:tool_call>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(
        '<invoke name="{name}">\n', "\n</invoke>", between="\n",
        opens="<minimax:tool_call>\n", closes="\n</minimax:tool_call>",
        parameter=('<parameter name="{key}">', "</parameter>", "\n"),
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
    ),
    sections=(Section(" <|START_ACTION|>", " <|END_ACTION|>"),),
    calls=(CallMark("{!{}", NamedObject(), alone=False),),
    fill="[],;}",
    keeps=(
        "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_ACTION|>",
        "<|END_ACTION|>",
    ),
    thinks=("<|START_THINKING|>",),
    writing=Writing(
        '{"tool_call_id": "{number}", "tool_name": "{name}", "parameters": ', "}", between=", ",
        opens="<|START_ACTION|>[", closes="]<|END_ACTION|>",
    ),
)  # fmt: skip
THINKER = Format("think", marks=THINK, keeps=THINK_TOKENS, thinks=("<think>",))
PLAIN = Format("plain")

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        HARMONY, MUSE, GEMMA4, DSML, DEEPSEEK, KIMI, MINIMAX, MISTRAL, GLM, QWEN_XML, SEED, NEMOTRON, COMMAND, GRANITE, HERMES,
        LLAMA3, THINKER, PLAIN,
    )
}  # fmt: skip

_FINGERPRINTS: tuple[tuple[Format, tuple[tuple[str, ...], ...]], ...] = (  # any of these groups, all of a group
    (HARMONY, (("<|channel|>", "<|message|>"),)),
    (MUSE, (("<atem:",), ("<|start|>", "<|message|>", "<|eot|>"))),
    (GEMMA4, (("<|tool_call>",), ("<|channel>",), ("<|turn>",))),
    (DSML, (("｜DSML｜",),)),
    (DEEPSEEK, (("<｜tool▁call",), ("<｜Assistant｜>",))),
    (KIMI, (("<|tool_calls_section_begin|>",), ("<|tool_call_begin|>",), ("◁think▷",))),
    (MINIMAX, (("<minimax:tool_call>",),)),
    (MISTRAL, (("[TOOL_CALLS]",), ("[THINK]",))),
    (GLM, (("<arg_key>",),)),
    (SEED, (("<seed:tool_call>",), ("<seed:think>",))),
    (QWEN_XML, (("<function=", "<parameter="),)),
    (NEMOTRON, (("<TOOLCALL>",),)),
    (COMMAND, (("<|START_ACTION|>",), ("<|START_THINKING|>",))),
    (HERMES, (("<tool_call>",),)),
    (GRANITE, (("<|tool_call|>",),)),
    (LLAMA3, (("<|python_tag|>",), ("<|start_header_id|>",), ("<|header_start|>",))),
    (THINKER, (("<think>",), ("</think>",))),
)


def choose(template: str) -> Format:
    """The format whose markers are in a chat template's text; `plain` if there are none."""
    for form, groups in _FINGERPRINTS:
        if any(all(marker in template for marker in group) for group in groups):
            return form
    return PLAIN
