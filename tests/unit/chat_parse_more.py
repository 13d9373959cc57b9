"""Hand-written answers in the less common chat formats."""

# ruff: noqa: E501

from __future__ import annotations

from unit.chat_parse_cases import NOW, PARIS, ROME, THINK, Case, P, R, json_calls, tag_calls


def _m3(text: str) -> str:
    """MiniMax M3's tags, each behind its mark (`|` here, and in front)."""
    mark = "]<]minimax[>["
    return mark + text.replace("|", mark)


def _k3(name: str, *arguments: tuple[str, str, str]) -> str:
    """A call of Kimi K3."""
    parts = [f'<|open|>argument key="{k}" type="{t}"<|sep|>{v}<|close|>argument<|sep|>' for k, t, v in arguments]
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{"".join(parts)}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


MORE: dict[str, dict[str, Case]] = {
    "tool-calls": THINK
    | json_calls("<tool_calls>\n", "\n</tool_calls>\n")
    | {"broken": Case("<tool_calls>now()</tool_calls>", content="<tool_calls>now()</tool_calls>")},
    "gigachat": json_calls("<|function_call|>", "<|message_sep|>") | {
        "old": Case(
            f'Ok<|message_sep|>\n\nfunction call<|role_sep|>\n{{"name": "weather", "arguments": {R}}}<|message_sep|>', "", "Ok", (ROME,)
        ),
        "thinking": Case("Yes", "", "Yes"),
    },
    "lfm2": THINK
    | {
        "one": Case("<|tool_call_start|>[weather(city='Paris', days=3)]<|tool_call_end|>", calls=(PARIS,)),
        "two": Case("Ok<|tool_call_start|>[weather(city=\"Roma 🌧️\"), now()]<|tool_call_end|>", "", "Ok", (ROME, NOW)),
        "deep": Case(
            "<|tool_call_start|>[x(a=[1, {'b': (True, None)}], c='it\\'s, (a)\\n')]<|tool_call_end|>",
            calls=(("x", {"a": [1, {"b": [True, None]}], "c": "it's, (a)\n"}),),
        ),
        "broken": Case(t := "<|tool_call_start|>[weather(Paris)]<|tool_call_end|>", content=t),
        "no call": Case(t := "<|tool_call_start|>[weather]<|tool_call_end|>", content=t),
        "cut off": Case(t := "<|tool_call_start|>[weather(city='Par", content=t),
    },
    "minicpm": THINK
    | tag_calls('<function name="NAME">PARAMETERS</function>', '<param name="KEY">VALUE</param>')
    | {"python": Case("<function name=\"weather\"><param name=\"tags\">['a', 1]</param></function>", calls=(("weather", {"tags": ["a", 1]}),))},
    "minimax-m3": {
        "thinking": Case("<mm:think>Hm.</mm:think>Yes. 🌍", "Hm.", "Yes. 🌍"),
        "one": Case(_m3('<tool_call>|<invoke name="weather">|<city>Paris|</city>|<days>3|</days>|</invoke>|</tool_call>'), calls=(PARIS,)),
        "two": Case(
            "Ok" + _m3('<tool_call>|<invoke name="weather">|<city>Roma 🌧️|</city>|</invoke>|<invoke name="now">|</invoke>|</tool_call>'),
            "", "Ok", (ROME, NOW),
        ),
        "deep": Case(
            _m3('<tool_call>|<invoke name="x">|<a>|<item>1|</item>|<item>|<b>x <c>|</b>|</item>|</a>|<d>|</d>|</invoke>|</tool_call>'),
            calls=(("x", {"a": [1, {"b": "x <c>"}], "d": ""}),),
        ),
        "broken": Case(t := _m3('<tool_call>|<invoke name="weather">|<city>Paris|</town>|</invoke>|</tool_call>'), content=t),
        "not a call": Case(t := _m3("<tool_call>none|</tool_call>"), content=t),
        "cut off": Case(t := _m3('<tool_call>|<invoke name="weather">|<city>Par'), content=t),
        "prompt": Case("Yes", "", "Yes", prompt="]~b]ai\n</mm:think>"),
    },
    "kimi-k3": {
        "thinking": Case(
            "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes. 🌍<|close|>response<|sep|><|close|>message<|sep|>", "Hm.", "Yes. 🌍",
            prompt='<|open|>message role="assistant"<|sep|><|open|>think<|sep|>',
        ),
        "empty parts": Case(
            "<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>" + _k3("now"), calls=(NOW,)
        ),
        "one": Case(_k3("weather", ("city", "string", "Paris"), ("days", "number", "3")), calls=(PARIS,)),
        "unicode": Case(_k3("weather", ("city", "string", "Roma 🌧️")), calls=(ROME,)),
        "types": Case(_k3("x", ("a", "string", "5"), ("b", "array", "[5]"), ("c", "number", "5")), calls=(("x", {"a": "5", "b": [5], "c": 5}),)),
        "no types": Case('<|open|>call tool="x"', content='<|open|>call tool="x"'),
        "broken": Case(t := "<|open|>tools<|sep|>none<|close|>tools<|sep|>", content=t),
        "cut off": Case(t := _k3("weather", ("city", "string", "Paris"))[:90], content=t),
    },
    "solar": {
        "reasoning and content": Case(
            "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes. 🌍<|end|>", "Hm.", "Yes. 🌍", prompt="<|end|><|begin|>assistant"
        ),
        "one": Case(
            "<|tool_calls|><|tool_call:begin|>c1<|tool_call:name|>weather<|tool_call:args|>" + P + "<|tool_call:end|><|calls|>",
            calls=(PARIS,), prompt="<|begin|>assistant",
        ),
        "two": Case(
            "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>c1<|tool_call:name|>weather<|tool_call:args|>" + R
            + "<|tool_call:end|><|tool_call:begin|>c2<|tool_call:name|>now<|tool_call:args|>{}<|tool_call:end|><|calls|>",
            "Hm.", "", (ROME, NOW), prompt="<|begin|>assistant",
        ),
        "no header": Case("Yes", "", "Yes", prompt="<|begin|>assistant"),
        "broken": Case(t := "<|tool_calls|>none<|calls|>", content=t),
        "cut off": Case(t := "<|tool_call:begin|>c1<|tool_call:name|>now<|tool_call:args|>{", content=t),
    },
    "hunyuan": tag_calls(
        "<tool_call:opensource>NAME<tool_sep:opensource>\nPARAMETERS\n</tool_call:opensource>",
        "<arg_key:opensource>KEY</arg_key:opensource>\n<arg_value:opensource>VALUE</arg_value:opensource>",
        "<tool_calls:opensource>\n", "\n</tool_calls:opensource>",
    )
    | {"thinking": Case("Hm.</think:opensource>Yes.", "Hm.", "Yes.", prompt="<｜hy_Assistant:opensource｜><think:opensource>")},
}  # fmt: skip
