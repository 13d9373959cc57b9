"""Built-in chat formats for files that carry no template: one line a format, found by marker tokens in the vocabulary.

The texts are facts of the models; the first format whose markers are all in the vocabulary is used, else `plain`.
To add one, add a line to `FORMATS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

BOS, EOS = "{bos}", "{eos}"


@dataclass(frozen=True)
class Format:
    """How turns are written; `{content}` is the message, `{role}` its role, `{bos}`/`{eos}` the model's tokens."""

    markers: tuple[str, ...]
    user: str
    assistant: str
    system: str | None
    """None: the format has no system turn (the text then goes in front of the first user turn)."""
    generation: str
    begin: str = ""

    @property
    def source(self) -> str:
        """The format as a Jinja template."""
        refusal = "{{ raise_exception('this chat format has no system role') }}"
        system = refusal if self.system is None else _output(self.system)
        return (
            f"{_output(self.begin)}{{% for m in messages %}}"
            f"{{% if m.role == 'system' or m.role == 'developer' %}}{system}"
            f"{{% elif m.role == 'assistant' %}}{_output(self.assistant)}"
            f"{{% else %}}{_output(self.user)}{{% endif %}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{_output(self.generation)}{{% endif %}}"
        )


_NAMES = {"{content}": "(m.content or '')", "{role}": "m.role", BOS: "(bos_token or '')", EOS: "(eos_token or '')"}


def _output(pattern: str) -> str:
    """`a{content}b` as a Jinja expression that prints it."""
    parts, rest = [], pattern
    while rest:
        start = min((at for name in _NAMES if (at := rest.find(name)) >= 0), default=len(rest))
        if start:
            parts.append(json.dumps(rest[:start]))
        rest = rest[start:]
        for name, expression in _NAMES.items():
            if rest.startswith(name):
                parts.append(expression)
                rest = rest.removeprefix(name)
                break
    return f"{{{{ {' ~ '.join(parts)} }}}}" if parts else ""


def _same(markers: tuple[str, ...], turn: str, generation: str, begin: str = "") -> Format:
    return Format(markers, turn, turn.replace("{role}", "assistant"), turn, generation, begin)


FORMATS: dict[str, Format] = {
    "chatml": _same(("<|im_start|>", "<|im_end|>"), "<|im_start|>{role}\n{content}<|im_end|>\n", "<|im_start|>assistant\n"),
    "llama3": _same(
        ("<|start_header_id|>", "<|eot_id|>"),
        "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        BOS,
    ),
    "llama4": _same(
        ("<|header_start|>", "<|eot|>"),
        "<|header_start|>{role}<|header_end|>\n\n{content}<|eot|>",
        "<|header_start|>assistant<|header_end|>\n\n",
        BOS,
    ),
    "gemma": Format(
        ("<start_of_turn>", "<end_of_turn>"),
        "<start_of_turn>user\n{content}<end_of_turn>\n",
        "<start_of_turn>model\n{content}<end_of_turn>\n",
        None,
        "<start_of_turn>model\n",
        BOS,
    ),
    "gemma4": Format(
        ("<|turn>", "<turn|>"),
        "<|turn>user\n{content}<turn|>\n",
        "<|turn>model\n{content}<turn|>\n",
        "<|turn>system\n{content}<turn|>\n",
        "<|turn>model\n",
        BOS,
    ),
    "muse": Format(
        ("<|start|>", "<|message|>", "<|eot|>"),
        "<|start|>{role}<|message|>{content}<|eot|>",
        "<|start|>assistant to=user<|message|>{content}<|eot|>",
        "<|start|>system<|message|>{content}<|eot|>",
        "<|start|>assistant",
        BOS,
    ),
    "harmony": Format(
        ("<|start|>", "<|message|>", "<|channel|>", "<|return|>"),
        "<|start|>{role}<|message|>{content}<|end|>",
        "<|start|>assistant<|channel|>final<|message|>{content}<|end|>",
        "<|start|>system<|message|>{content}<|end|>",
        "<|start|>assistant",
    ),
    "glm4": Format(
        ("[gMASK]", "<sop>", "<|user|>", "<|assistant|>"),
        "<|user|>\n{content}",
        "<|assistant|>\n{content}",
        "<|system|>\n{content}",
        "<|assistant|>",
        "[gMASK]<sop>",
    ),
    "phi3": _same(("<|user|>", "<|assistant|>", "<|end|>"), "<|{role}|>\n{content}<|end|>\n", "<|assistant|>\n"),
    "granite": _same(
        ("<|start_of_role|>", "<|end_of_role|>"),
        "<|start_of_role|>{role}<|end_of_role|>{content}<|end_of_text|>\n",
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
    "command-r": Format(
        ("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{content}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{content}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{content}<|END_OF_TURN_TOKEN|>",
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        BOS,
    ),
    "deepseek": Format(
        ("<｜User｜>", "<｜Assistant｜>"),
        "<｜User｜>{content}",
        "<｜Assistant｜>{content}{eos}",
        "{content}",
        "<｜Assistant｜>",
        BOS,
    ),
    "mistral-v7": Format(
        ("[INST]", "[/INST]", "[SYSTEM_PROMPT]"),
        "[INST]{content}[/INST]",
        "{content}{eos}",
        "[SYSTEM_PROMPT]{content}[/SYSTEM_PROMPT]",
        "",
        BOS,
    ),
    "mistral-v3": Format(("[INST]", "[/INST]"), "[INST] {content}[/INST]", " {content}{eos}", None, "", BOS),
    "plain": Format((), "User: {content}\n", "Assistant: {content}\n", "{content}\n\n", "Assistant:", BOS),
}


def choose(tokens: Iterable[str]) -> str:
    """The name of the format for a vocabulary."""
    wanted = {marker for form in FORMATS.values() for marker in form.markers}
    found = wanted.intersection(tokens)
    fits = [name for name, form in FORMATS.items() if found.issuperset(form.markers)]
    if "harmony" in fits:  # its markers include those of muse where <|eot|> exists as well
        return "harmony"
    return fits[0]
