"""Real templates: each is known by its words, and what it writes for an assistant's turn is read back as it was.

llama.cpp's sources carry templates of many models; the benchmarks fetch them (`make bench`). They are read here, never
committed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tensormill.chat import ChatTemplate
from tensormill.chat.parse import OutputParser, choose, gather

FOLDERS = sorted(Path.home().glob(".cache/tensormill/llama.cpp-native/src/*/vendor/llama.cpp/models/templates"))
pytestmark = pytest.mark.skipif(not FOLDERS, reason="no llama.cpp sources here: `make bench` fetches them")

FULL = "one two text think"  # of a tool call, two, text before a call, reasoning before a call: what comes back
KNOWN = {
    "Bielik-11B-v3.0-Instruct": ("hermes", FULL),
    "ByteDance-Seed-OSS": ("seed", FULL),
    "Cohere2MoE": ("command", "one two think"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("command", "one two think"),
    "GLM-4.6": ("glm", FULL),
    "GLM-4.7-Flash": ("glm", FULL),
    "GigaChat3-10B-A1.8B": ("gigachat", "one text"),
    "GigaChat3.1-10B-A1.8B": ("gigachat", "one text"),
    "Kimi-K3": ("kimi-k3", FULL),
    "LFM2.5-8B-A1B": ("lfm2", FULL),
    "MiniMax-M1": ("tool-calls", "one two"),
    "MiniMax-M2": ("minimax", FULL),
    "MiniMax-M3": ("minimax-m3", FULL),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral", "one two"),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": ("qwen-xml", FULL),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron", "one two"),
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", "one two"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", "one two text"),
    "Qwen-Qwen3-0.6B": ("hermes", FULL),
    "Qwen3-Coder": ("qwen-xml", "one two text"),
    "Qwen3.5-4B": ("qwen-xml", FULL),
    "Reka-Edge": ("hermes", "one two text"),
    "Spark2.5": ("glm", FULL),
    "StepFun3.5-Flash": ("qwen-xml", FULL),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek", "one two"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek", "one two text"),
    "deepseek-ai-DeepSeek-V3.2": ("dsml", "one two text"),
    "deepseek-ai-DeepSeek-V4": ("dsml", "one two text"),
    "google-gemma-4-31B-it": ("gemma4", "one two think"),
    "ibm-granite-granite-4.0": ("hermes", "one two text"),
    "inclusionai-ling-3.0-flash": ("glm", FULL),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3", "one"),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3", "one"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", "one two text"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "one two"),
    "moonshotai-Kimi-K2": ("kimi", "one two text"),
    "muse-glimmer": ("muse", "one two think"),
    "openai-gpt-oss-120b": ("harmony", "one think"),
    "openbmb-MiniCPM5-1B": ("minicpm", FULL),
    "poolside-Laguna-S-2.1": ("glm", FULL),
    "unsloth-mistral-Devstral-Small-2507": ("mistral", "one two text"),
    "tencent-Hy3": ("hunyuan", FULL),
    "upstage-Solar-Open-100B": ("solar", "one two think"),
    "google-gemma-2-2b-it": ("plain", ""),
    "HuggingFaceTB-SmolLM3-3B": ("think", ""),
}
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where"},
        "days": {"type": "integer", "description": "How many"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Words"},
    },
    "required": ["city"],
}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather", "parameters": WEATHER}}]
PARIS, ROME = {"city": "Paris", "days": 3, "tags": ["a", "b"]}, {"city": "Roma ☔"}
TURNS = {
    "one": ("", "", [PARIS]),
    "two": ("", "", [PARIS, ROME]),
    "text": ("", "Let me look.", [ROME]),
    "think": ("Hm, Paris?", "", [PARIS]),
}
END = re.compile(  # what ends a turn: the engine stops there
    r"(<EOS>|<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|<\|end_of_text\|>|<\|END_OF_TURN_TOKEN\|>|<turn\|>|<\|eot\|>|<seed:eos>|\[e~\[|"
    r"<SPECIAL_12>|<sep>|<｜end▁of▁sentence｜>|<\|role_end\|>|<end_of_sentence>|</assistant>|<\|end_of_msg\|>|<｜hy_eos:opensource｜>).*",
    re.DOTALL,
)


def turn(template: ChatTemplate, reasoning: str, content: str, calls: list) -> tuple[str, str]:
    """The prompt, and what the template writes for an assistant's turn behind it."""
    user = {"role": "user", "content": "Weather?"}
    made = [
        {"id": f"call0000{i}", "type": "function", "function": {"name": "weather", "arguments": json.dumps(a)}}
        for i, a in enumerate(calls)
    ]
    answer = {"role": "assistant", "content": content, "tool_calls": made}
    if reasoning:
        answer["reasoning_content"] = reasoning
    prompt = template.render([user], tools=TOOLS)
    whole = template.render([user, answer], tools=TOOLS, add_generation_prompt=False)
    common = next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), min(len(prompt), len(whole)))
    if common < len(prompt):  # the turn opens otherwise than the prompt would: back to where a marker begins
        common = max(prompt.rfind(c, 0, common) for c in "<[") if prompt[common - 1] not in ">]\n" else common
    return whole[:common], END.sub("", whole[common:], count=1)


@pytest.mark.parametrize("name", KNOWN)
def test_real_template(name: str):
    path = next((f / f"{name}.jinja" for f in FOLDERS if (f / f"{name}.jinja").exists()), None)
    if path is None:
        pytest.skip("these sources do not have it")
    source = path.read_text(encoding="utf-8")
    form, titles = KNOWN[name]
    assert choose(source).name == form
    for title in titles.split():
        reasoning, content, calls = TURNS[title]
        prompt, text = turn(ChatTemplate(source, bos="<BOS>", eos="<EOS>"), reasoning, content, calls)
        parser = OutputParser(form, TOOLS, continues=prompt)
        answer = gather([e for c in text for e in parser.push(c)] + parser.finish())
        assert [json.loads(c.arguments) for c in answer.calls] == calls, (title, text)
        assert (answer.reasoning.strip(), answer.content.strip()) == (reasoning, content), (title, prompt[-40:], text)
