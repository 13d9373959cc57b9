"""Hand-written answers in each chat format, and what they mean. `Case(text, reasoning, content, calls)`."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """An answer's text and its parts; `prompt` is what it continues."""

    text: str
    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    prompt: str = ""


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "exact": {"type": "boolean"},
                    "tags": {"type": "array"},
                    "zip": {"type": ["string", "null"]},
                },
            },
        },
    },
    {"name": "now", "input_schema": {"type": "object", "properties": {}}},
    {"type": "function", "function": {"name": "run_code", "parameters": {"properties": {"code": {"type": "string"}}}}},
]
PARIS = ("weather", {"city": "Paris", "days": 3})
ROME = ("weather", {"city": "Roma 🌧️"})
NOW = ("now", {})
P = '{"city": "Paris", "days": 3}'
R = '{"city": "Roma 🌧️"}'


def json_calls(before: str, behind: str, key: str = "arguments") -> dict[str, Case]:
    """What formats share in which a JSON object names the tool."""

    def call(name: str, arguments: str) -> str:
        return f'{before}{{"name": "{name}", "{key}": {arguments}}}{behind}'

    return {
        "one": Case(call("weather", P), calls=(PARIS,)),
        "two": Case(call("weather", P) + call("now", "{}"), calls=(PARIS, NOW)),
        "unicode": Case(call("weather", R), calls=(ROME,)),
        "thinking": Case("<think>\nWhy ☂?\n</think>\n\n" + call("now", "{}"), reasoning="Why ☂?", calls=(NOW,)),
        "no end": Case(call("now", "{}").removesuffix(behind), calls=(NOW,)),
        "keys in another order": Case(f'{before}{{"{key}": {P}, "name": "weather"}}{behind}', calls=(PARIS,)),
        "line break in a string": Case(
            call("run_code", '{"code": "a\nb\t\'\\d"}'), calls=(("run_code", {"code": "a\nb\t'\\d"}),)
        ),
        "cut off": Case(cut := call("weather", P)[: len(before) + 50], content=cut),
    }


def tag_calls(call: str, parameter: str, opens: str = "", closes: str = "") -> dict[str, Case]:
    """What formats share in which parameters stand in tags; `call` has NAME and PARAMETERS, `parameter` KEY and VALUE."""

    def one(name: str, **values: str) -> str:
        parts = "\n".join(parameter.replace("KEY", k).replace("VALUE", v) for k, v in values.items())
        return call.replace("NAME", name).replace("PARAMETERS", parts)

    every = {"city": "5", "days": "5", "exact": "True", "tags": '["a", {"b": 1}]', "zip": "null", "other": "1.5"}
    means = {"city": "5", "days": 5, "exact": True, "tags": ["a", {"b": 1}], "zip": None, "other": 1.5}
    code = 'if a < b:\n    print("</x>")'
    return {
        "one": Case(opens + one("weather", city="Paris", days="3") + closes, calls=(PARIS,)),
        "two": Case(
            f"Sure.\n\n{opens}{one('weather', city='Paris', days='3')}\n{one('now')}{closes}",
            content="Sure.",
            calls=(PARIS, NOW),
        ),
        "unicode": Case(opens + one("weather", city="Roma 🌧️") + closes, calls=(ROME,)),
        "types": Case(opens + one("weather", **every) + closes, calls=(("weather", means),)),
        "wrong type": Case(opens + one("weather", days="three") + closes, calls=(("weather", {"days": "three"}),)),
        "code": Case(opens + one("run_code", code=code) + closes, calls=(("run_code", {"code": code}),)),
        "broken": Case(broken := opens + one("weather", city="Paris").replace("KEY", "").replace("city", "<"), content=broken),
        "cut off": Case(cut := opens + one("weather", city="Paris").partition("is")[0], content=cut),
    }


THINK = {
    "reasoning and content": Case("<think>\nLet me see.\n</think>\n\nIt rains. 🌧️", "Let me see.", "It rains. 🌧️"),
    "prompt opened reasoning": Case(
        "Let me see.\n</think>\n\nYes.", "Let me see.", "Yes.", prompt="<|user|>hi<|assistant|><think>\n"
    ),
    "prompt closed reasoning": Case("Yes </think>.", "", "Yes </think>.", prompt="<|assistant|><think>\n\n</think>\n\n"),
    "mention": Case("Use <think> and </thi", "", "Use <think> and </thi"),
    "endless": Case("<think>So many words", "So many words"),
}
CASES: dict[str, dict[str, Case]] = {
    "plain": {
        "text": Case("Hi <think> {x}\n", "", "Hi <think> {x}\n"),
        "space": Case(" \n\n a \n", "", " \n\n a \n"),
        "empty": Case(""),
        "unicode": Case("日本語 👩‍👩‍👧", "", "日本語 👩‍👩‍👧"),
        "prompt": Case("a", "", "a", prompt="<think>"),
    }
    | json_calls("<tool_call>\n", "\n</tool_call>\n")
    | {"thinking": Case("<think>a</think>b", "", "<think>a</think>b")},
    "think": THINK | json_calls("<tool_call>\n", "\n</tool_call>\n"),
    "hermes": THINK
    | json_calls("<tool_call>\n", "\n</tool_call>\n")
    | {
        "bare": Case(f'{{"name": "weather", "arguments": {P}}}', calls=(PARIS,)),
        "bare, behind reasoning": Case(f'<think>Hm</think>\n{{"name": "weather", "arguments": {P}}}', "Hm", "", (PARIS,)),
        "bare, two": Case(f'{{"name": "weather", "arguments": {P}}}\n{{"name": "now", "arguments": {{}}}}', calls=(PARIS, NOW)),
        "fenced": Case(f'```json\n{{\n  "name": "weather",\n  "arguments": {P}\n}}\n```', calls=(PARIS,)),
        "code": Case(t := '```json\n{"name": "Ada"}\n```', content=t),
        "an answer that is JSON": Case('{"name": "Ada", "born": 1815}', content='{"name": "Ada", "born": 1815}'),
        "JSON of no tool": Case(t := '{"name": "Ada", "arguments": {}}', content=t),
        "JSON later on": Case(t := f'So: {{"name": "weather", "arguments": {P}}}', content=t),
        "bare, cut off": Case(t := '{"name": "weather", "arguments": {"city": "Pa', content=t),
        "broken": Case("<tool_call>\nnot json\n</tool_call>", content="<tool_call>\nnot json\n</tool_call>"),
        "broken, then one": Case(
            '<tool_call>\n<tool_call>\n{"name": "now"}\n</tool_call>', content="<tool_call>", calls=(NOW,)
        ),
        "one, then broken": Case(
            '<tool_call>{"name": "now", "arguments": {}}</tool_call> <tool_call>{"x"}',
            content='<tool_call>{"x"}', calls=(NOW,),
        ),
        "text around": Case(f'A\n<tool_call>{{"name": "weather", "arguments": {P}}}</tool_call>\nB', "", "AB", (PARIS,)),
        "inside reasoning": Case('<think>Go <tool_call>{"name": "now"}</tool_call>', "Go", "", (NOW,)),
        "one brace too many": Case('<tool_call>{"name": "now", "arguments": {}}}\n</tool_call>', calls=(NOW,)),
        "arguments as text": Case(
            '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\", \\"days\\": 3}"}</tool_call>', calls=(PARIS,)
        ),
        "arguments of no object": Case(t := '<tool_call>{"name": "now", "arguments": [1]}</tool_call>', content=t),
        "unknown tool": Case('<tool_call>{"name": "x", "arguments": null}</tool_call>', calls=(("x", {}),)),
        "python's words": Case(
            '<tool_call>{"name": "x", "arguments": {"a": True, "b": None}}</tool_call>', calls=(("x", {"a": True, "b": None}),)
        ),
    },
    "qwen-xml": THINK
    | tag_calls("<tool_call>\n<function=NAME>\nPARAMETERS\n</function>\n</tool_call>", "<parameter=KEY>\nVALUE\n</parameter>")
    | {
        "no opening": Case("<function=now>\n</function>\n</tool_call>", calls=(NOW,)),
        "closing tag in a value": Case(
            "<tool_call>\n<function=run_code>\n<parameter=code>\n</parameter> here\n</parameter>\n</function>\n</tool_call>",
            calls=(("run_code", {"code": "</parameter> here"}),),
        ),
        "value of two lines": Case(
            "<tool_call><function=run_code><parameter=code>\n\nx\n\n</parameter></function></tool_call>",
            calls=(("run_code", {"code": "\nx\n"}),),
        ),
        "JSON all the same": Case('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>', calls=(NOW,)),
    },
    "seed": tag_calls(
        "<seed:tool_call>\n<function=NAME>\nPARAMETERS\n</function>\n</seed:tool_call>", "<parameter=KEY>VALUE</parameter>"
    )
    | {"thinking": Case("<seed:think>Hm.</seed:think>Yes.", "Hm.", "Yes.")},
    "llama3": THINK
    | {
        "bare": Case(f'{{"name": "weather", "parameters": {P}}}', calls=(PARIS,)),
        "two": Case(f'{{"name": "weather", "parameters": {P}}}; {{"name": "now", "parameters": {{}}}}', calls=(PARIS, NOW)),
        "python tag": Case(f'<|python_tag|>{{"name": "weather", "parameters": {R}}}<|eom_id|>', calls=(ROME,)),
        "typed": Case(f'\n{{"type": "function", "name": "weather", "parameters": {P}}}', calls=(PARIS,)),
        "function tag": Case(f"Now: <function=weather>{P}</function>", content="Now:", calls=(PARIS,)),
        "an answer that is JSON": Case('{"name": "Ada", "born": 1815}', content='{"name": "Ada", "born": 1815}'),
        "JSON of no tool": Case(t := '{"name": "Ada", "parameters": {}}', content=t),
        "JSON later on": Case(t := f'So: {{"name": "weather", "parameters": {P}}}', content=t),
        "code": Case("<|python_tag|>print(1)", content="<|python_tag|>print(1)"),
        "cut off": Case(t := '{"name": "weather", "parameters": {"city": "Pa', content=t),
    },
    "mistral": {
        "old": Case(f'[TOOL_CALLS][{{"name": "weather", "arguments": {P}}}, {{"name": "now", "arguments": {{}}}}]', calls=(PARIS, NOW)),
        "new": Case(f"[TOOL_CALLS]weather[ARGS]{P}[TOOL_CALLS]now[ARGS]{{}}", calls=(PARIS, NOW)),
        "with id": Case(f"Ok.[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{R}", "", "Ok.", (ROME,)),
        "no marker before arguments": Case(f"[TOOL_CALLS]weather{P}", calls=(PARIS,)),
        "thinking": Case("[THINK]Hm, é.[/THINK]Yes.", "Hm, é.", "Yes."),
        "thinking, then a call": Case("[THINK]Hm[/THINK][TOOL_CALLS]now[ARGS]{}", "Hm", "", (NOW,)),
        "broken": Case("[TOOL_CALLS]what is this", content="[TOOL_CALLS]what is this"),
        "cut off": Case("[TOOL_CALLS]now[ARGS]{", content="[TOOL_CALLS]now[ARGS]{"),
    },
    "deepseek": THINK
    | {
        "V3": Case(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + P + "\n```<｜tool▁call▁end｜>"
            "\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            calls=(PARIS, NOW),
        ),
        "V3.1": Case(
            f"Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{P}<｜tool▁call▁end｜>"
            "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            content="Ok", calls=(PARIS, NOW),
        ),
        "no section": Case(f"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{R}<｜tool▁call▁end｜>", calls=(ROME,)),
        "empty section": Case(t := "<｜tool▁calls▁begin｜>none<｜tool▁calls▁end｜>", content=t),
        "broken": Case(t := "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>Paris", content=t),
        "thinking": Case(f"<think>Hm</think><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{R}", "Hm", "", (ROME,)),
    },
    "dsml": THINK
    | tag_calls(
        '<｜DSML｜invoke name="NAME">\nPARAMETERS\n</｜DSML｜invoke>', '<｜DSML｜parameter name="KEY">VALUE</｜DSML｜parameter>',
        "<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>",
    )
    | {
        "flags": Case(
            '<｜DSML｜tool_calls><｜DSML｜invoke name="x"><｜DSML｜parameter name="a" string="true">5</｜DSML｜parameter>'
            '<｜DSML｜parameter name="b" string="false">5</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>',
            calls=(("x", {"a": "5", "b": 5}),),
        ),
        "spaced": Case(
            '<｜DSML｜ calls>\n<｜DSML｜ invoke name="weather">\n<｜DSML｜ parameter name="city" string="true">Roma 🌧️'
            "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>",
            calls=(ROME,),
        ),
    },
    "gemma4": {
        "thinking": Case("<|channel>thought\nHm.\n<channel|>Yes. 🌍", "Hm.", "Yes. 🌍"),
        "empty thought": Case("<|channel>thought\n<channel|>Yes.", "", "Yes."),
        "one": Case('<|tool_call>call:weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>', calls=(PARIS,)),
        "two": Case(
            'Ok<|tool_call>call:weather{city:<|"|>Roma 🌧️<|"|>}<tool_call|><|tool_call>call:now{}<tool_call|>', "", "Ok", (ROME, NOW)
        ),
        "deep": Case(
            '<|tool_call>call:x{a:{b:[1,-2.5,true,null,<|"|>a,b:"{c}"\\<|"|>]},c d:sun, e:<|"|><|"|>}<tool_call|>',
            calls=(("x", {"a": {"b": [1, -2.5, True, None, 'a,b:"{c}"\\']}, "c d": "sun", "e": ""}),),
        ),
        "line break": Case('<|tool_call>call:run_code{code:<|"|>a\n<b>\t<|x<|"|>}', calls=(("run_code", {"code": "a\n<b>\t<|x"}),)),
        "broken": Case(t := "<|tool_call>call:weather(city)", content=t),
        "cut off": Case(t := '<|tool_call>call:weather{city:<|"|>Par', content=t),
        "prompt opened reasoning": Case("Hm<channel|>Yes", "Hm", "Yes", prompt="<|turn>model\n<|channel>thought\n"),
    },
    "harmony": {
        "reasoning and content": Case(
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes. 🌍<|return|>", "Hm.", "Yes. 🌍"
        ),
        "behind a prompt": Case(
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "Hm.", "Yes.",
            prompt="<|start|>user<|message|>hi<|end|><|start|>assistant",
        ),
        "call": Case(
            f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
            f"<|constrain|>json<|message|>{P}<|call|>",
            "Hm.", "", (PARIS,),
        ),
        "recipient first": Case(
            f" to=functions.weather<|channel|>commentary json<|message|>{R}<|call|>", calls=(ROME,), prompt="<|start|>assistant"
        ),
        "recipient first, no prompt": Case(" to=functions.now<|channel|>commentary<|message|>{}", calls=(NOW,)),
        "preamble and two": Case(
            "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary "
            "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.weather<|message|>" + P,
            "", "I look.", (NOW, PARIS),
        ),
        "final of a kind": Case("<|channel|>final <|constrain|>json<|message|>{}", "", "{}"),
        "broken": Case(t := "<|channel|>commentary to=functions.x<|message|>oh", content=t),
        "prompt in the final message": Case("es.", "", "es.", prompt="<|start|>assistant<|channel|>final<|message|>Y"),
        "no header": Case("Yes.", "", "Yes.", prompt="<|start|>assistant"),
    },
    "glm": THINK
    | tag_calls("<tool_call>NAME\nPARAMETERS\n</tool_call>", "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>")
    | {
        "compact": Case("<tool_call>weather<arg_key>city</arg_key><arg_value>Roma 🌧️</arg_value></tool_call>", calls=(ROME,)),
        "a sentence": Case(t := "<tool_call> is a tag.", content=t),
    },
    "kimi": THINK
    | {
        "one": Case(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>" + P
            + "<|tool_call_end|><|tool_calls_section_end|>",
            calls=(PARIS,),
        ),
        "two": Case(
            "A<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>" + R
            + "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
            + "<|tool_calls_section_end|>",
            "", "A", (ROME, NOW),
        ),
        "no section": Case("<|tool_call_begin|>now<|tool_call_argument_begin|>{}", calls=(NOW,)),
        "broken": Case(t := "<|tool_calls_section_begin|>x<|tool_calls_section_end|>", content=t),
        "other thinking": Case("◁think▷Hm◁/think▷Yes", "Hm", "Yes"),
        "cut off": Case(t := "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{", content=t),
    },
    "muse": tag_calls(
        '<atem:invoke name="NAME">\nPARAMETERS\n</atem:invoke>', '<atem:parameter name="KEY">VALUE</atem:parameter>',
        "<atem:function_calls>\n", "\n</atem:function_calls>",
    )
    | {
        "reasoning and content": Case(
            " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Yes. 🌍<|eot|>", "Hm.", "Yes. 🌍",
            prompt="<|start|>user<|message|>hi<|eot|><|start|>assistant",
        ),
        "reasoning and call": Case(
            " to=self<|message|>Hm.<|eom|><|start|>assistant to=now<|message|><atem:function_calls>"
            '<atem:invoke name="now"></atem:invoke></atem:function_calls><|eot|>',
            "Hm.", "", (NOW,), prompt="<|start|>assistant",
        ),
        "header missing": Case(
            ' to=self<|message|>Hm. to=now<|message|><atem:function_calls><atem:invoke name="now"></atem:invoke>', "Hm.", "", (NOW,)
        ),
        "call without reasoning": Case(
            ' to=now<|message|><atem:function_calls>\n<atem:invoke name="now">\n</atem:invoke>\n</atem:function_calls>',
            calls=(NOW,), prompt="<|start|>assistant",
        ),
        "no header": Case("Yes.", "", "Yes.", prompt="<|start|>assistant"),
    },
    "minimax": THINK
    | tag_calls(
        '<invoke name="NAME">\nPARAMETERS\n</invoke>', '<parameter name="KEY">VALUE</parameter>',
        "<minimax:tool_call>\n", "\n</minimax:tool_call>",
    ),
    "nemotron": THINK
    | json_calls("<TOOLCALL>[", "]</TOOLCALL>")
    | {
        "list": Case(
            f'<TOOLCALL>[{{"name": "weather", "arguments": {P}}}, {{"name": "now", "arguments": {{}}}}]</TOOLCALL>', calls=(PARIS, NOW)
        ),
        "broken": Case("<TOOLCALL>now()</TOOLCALL>", content="<TOOLCALL>now()</TOOLCALL>"),
    },
    "granite": THINK
    | json_calls("<|tool_call|>[", "]")
    | {"broken": Case("<|tool_call|>[now()]", content="<|tool_call|>[now()]")},
    "command": {
        "thinking": Case("<|START_THINKING|>Hm<|END_THINKING|><|START_RESPONSE|>Yes<|END_RESPONSE|>", "Hm", "Yes"),
        "one": Case(
            f'<|START_ACTION|>[\n {{"tool_call_id": "0", "tool_name": "weather", "parameters": {P}}}\n]<|END_ACTION|>', calls=(PARIS,)
        ),
        "two": Case(
            f'<|START_ACTION|>[{{"tool_call_id": "0", "tool_name": "weather", "parameters": {R}}}, '
            '{"tool_call_id": "1", "tool_name": "now", "parameters": {}}]<|END_ACTION|>',
            calls=(ROME, NOW),
        ),
        "plan": Case('<|START_THINKING|>Go<|END_THINKING|><|START_ACTION|>[{"tool_name": "now"}]', "Go", "", (NOW,)),
        "broken": Case("<|START_ACTION|>now<|END_ACTION|>", content="<|START_ACTION|>now<|END_ACTION|>"),
        "cut off": Case(t := '<|START_ACTION|>[{"tool_name": "now", "para', content=t),
    },
}  # fmt: skip
