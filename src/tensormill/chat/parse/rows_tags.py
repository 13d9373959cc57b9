"""Formats in which parameters stand in tags, typed by the tool's schema: a row each, in the words of the models."""

from __future__ import annotations

from tensormill.chat.parse.formats import CallMark, Format, Mark, NamedObject, Nested, Parameters, Section, Writing
from tensormill.chat.parse.thinking import THINK, THINK_TOKENS

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

MINICPM = Format(
    "minicpm",
    marks=THINK,
    calls=(CallMark(' <function name="{name}" >', Parameters(' <param name="{key}" >', ("</param>",), (" </function>",))),),
    keeps=("<function", "<param", "</param>", "</function>", *THINK_TOKENS),
    thinks=("<think>",),
    writing=Writing(
        '<function name="{name}">', "</function>", between="\n", parameter=('<param name="{key}">', "</param>", "")
    ),
)
MINIMAX_M3 = Format(  # values are trees of tags, each behind a token of its own
    "minimax-m3",
    marks=(Mark(" <mm:think>", "reasoning", start=True), Mark(" </mm:think>", "content")),
    sections=(Section(" ]<]minimax[>[<tool_call>", " ]<]minimax[>[</tool_call>"),),
    calls=(CallMark(' ]<]minimax[>[<invoke name="{name}" >', Nested("]<]minimax[>[", "invoke", "item"), alone=False),),
    keeps=("]<]minimax[>[", "<mm:think>", "</mm:think>", "<tool_call>", "</tool_call>"),
    thinks=("<mm:think>",),
    writing=Writing(
        ']<]minimax[>[<invoke name="{name}">', "]<]minimax[>[</invoke>", between="\n",
        opens="]<]minimax[>[<tool_call>\n", closes="\n]<]minimax[>[</tool_call>", tree="]<]minimax[>[",
    ),
)  # fmt: skip
HUNYUAN = Format(  # Hy3: GLM's shape, in tags of its own
    "hunyuan",
    marks=(
        Mark(" <think:opensource>", "reasoning", start=True),
        Mark(" </think:opensource>", "content"),
    ),
    sections=(Section(" <tool_calls:opensource>", " </tool_calls:opensource>"),),
    calls=(
        CallMark(
            " <tool_call:opensource> {name} <tool_sep:opensource>",
            Parameters(
                " <arg_key:opensource> {key}</arg_key:opensource> <arg_value:opensource>",
                ("</arg_value:opensource>",),
                (" </tool_call:opensource>",),
            ),
            alone=False,
        ),
    ),
    keeps=tuple(
        f"<{slash}{word}:opensource>"
        for word in ("think", "tool_calls", "tool_call", "arg_key", "arg_value")
        for slash in ("", "/")
    ),
    thinks=("<think:opensource>",),
    writing=Writing(
        "<tool_call:opensource>{name}<tool_sep:opensource>\n",
        "\n</tool_call:opensource>",
        between="\n",
        opens="<tool_calls:opensource>\n",
        closes="\n</tool_calls:opensource>",
        parameter=(
            "<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
            "</arg_value:opensource>",
            "\n",
        ),
    ),
)
