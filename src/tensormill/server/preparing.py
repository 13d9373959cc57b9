"""From an internal request to what an engine takes: template, ids, sampling. Pure and slow: run on a thread.

What cannot be served is refused here, in words for the sender, before an engine hears of it.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from llguidance import LLMatcher

from tensormill import chat as chats
from tensormill.bounds import MOST_VALUES
from tensormill.chat.constrain import Wanted, constrain
from tensormill.chat.constrain.frames import frame
from tensormill.engine.messages import Grammar, Thinking
from tensormill.errors import RequestError, TemplateError
from tensormill.sampling.kept import Kept
from tensormill.sampling.sampler import check_biases
from tensormill.sampling.sources import source
from tensormill.server.exchange import encode
from tensormill.server.problem import Problem
from tensormill.server.request import EFFORTS, Ask, Prompt
from tensormill.server.served import ServedModel

_TAG = re.compile(r"<[^<>]*>")
_TAIL = 4096  # characters of the prompt that the parser of the answer may need
_fine: Kept[bool] = Kept(0, 1024)  # grammars that have been checked


def prepare(model: ServedModel, ask: Ask) -> Prompt:
    """The ids and the sampling of a request; Problem if it cannot be served."""
    sampling = _sampling(model, ask)
    try:
        if ask.messages is not None:
            made = chat(model, ask)
            prompt = Prompt(_behind(model, ask, made.ids), sampling, made.text[-_TAIL:])
        else:
            prompt = Prompt(_behind(model, ask, _raw(model, ask)), sampling)
    except TemplateError as error:
        raise Problem(str(error), param="messages") from error
    prompt.grammar = _grammar(model, ask, prompt.text)
    if prompt.grammar is not None:
        _check(prompt.grammar)
    prompt.thinking = _thinking(model, ask, prompt)
    prompt.shows = None if ask.show_special else _shown(model, ask)
    return prompt


def _grammar(model: ServedModel, ask: Ask, text: str) -> Grammar | None:
    """What the answer must match: the form that was asked for, and calls as the model's format writes them."""
    if ask.messages is None or not ask.parse:
        return ask.grammar
    named = ask.tool_choice.startswith("=")
    wanted = Wanted(
        tools=ask.tools or (),
        choice="named" if named else ask.tool_choice,
        name=ask.tool_choice[1:] if named else "",
        parallel=ask.parallel_tool_calls,
        response=(ask.grammar.kind, ask.grammar.text) if ask.grammar else None,
    )
    try:
        made = constrain(model.format, model.tokenizer, wanted, text)
    except RequestError as error:
        raise Problem(str(error), param="tools") from error
    return Grammar(*made) if made else None


def _check(grammar: Grammar) -> None:
    """Problem for a grammar that the engine would refuse: once a stream has begun, its status can say no more."""
    if _fine.get(grammar.kind, grammar.text):
        return
    try:
        fault = LLMatcher.validate_grammar(source(grammar.kind, grammar.text))
    except RequestError as error:
        raise Problem(str(error), param="tools" if grammar.kind == "composed" else "response_format") from error
    if fault:
        raise Problem(f"the grammar cannot be used: {fault}", param="response_format")
    _fine.keep(grammar.kind, grammar.text, True, 0)


def _budget(model: ServedModel, ask: Ask, prompt: Prompt) -> int | None:
    """Tokens that reasoning may take: as asked; where the template knows no efforts, a share of those that the answer may."""
    share = EFFORTS.get(str(ask.template_values.get("reasoning_effort")))
    if ask.thinking_budget is not None or share is None or "reasoning_effort" in model.template.source:
        return ask.thinking_budget
    most = prompt.sampling.max_tokens
    if most is None and model.engine.info is not None:
        most = max(model.engine.info.context - len(prompt.tokens), 0)
    return None if most is None else int(share * most)


def _thinking(model: ServedModel, ask: Ask, prompt: Prompt) -> Thinking | None:
    """The bound on reasoning, if there is one and the model's format has such a thing."""
    around, budget = frame(model.format), _budget(model, ask, prompt)
    if ask.messages is None or budget is None or around.reasoning is None:
        return None
    begin, end = around.reasoning
    final = end + around.content[0]
    close, answer = (end, final) if ask.tools and around.content[0] else (final, final)
    if not around.content[0]:
        close = answer = f"\n{end}\n\n"
    ids, again = (model.tokenizer.encode(t, add_special=False, parse_special=True) for t in (close, answer))
    opened = any(prompt.text.rstrip().endswith(marker) for marker in model.format.thinks)
    tag = _TAG.match(end)
    return Thinking(budget, begin.strip(), tag.group() if tag else end, ids, again, opened)


def _shown(model: ServedModel, ask: Ask) -> list[int]:
    keeps = model.format.keeps if ask.messages is not None else ()
    return [token for text in keeps if (token := model.tokenizer.id_of(text)) is not None]


def chat(model: ServedModel, ask: Ask) -> chats.Prompt:
    """The prompt of a chat."""
    messages = ask.messages or []
    if not messages:
        raise Problem("messages must have at least one message", param="messages")
    size = len(encode(ask.template_values))
    if size > MOST_VALUES:
        raise Problem(
            f"the template's variables have {size} bytes; at most {MOST_VALUES} are taken", param="chat_template_kwargs"
        )
    values = dict(ask.template_values)
    if ask.thinking is not None:
        values.setdefault("enable_thinking", ask.thinking)
    values["tools"] = ask.tools if ask.tool_choice != "none" else None
    last = messages[-1]
    if ask.continue_final and last.get("role") == "assistant" and isinstance(last.get("content"), str):
        made = model.prompts.rendered(messages[:-1], values, behind=str(last["content"]))
    else:
        made = model.prompts.rendered(messages, values)
    check_length(model, made.plain, "messages")
    return chats.Prompt(made.plain, model.prompts.ids(made))


def check_length(model: ServedModel, text: str, param: str) -> None:
    """Problem for a text that cannot fit, however it is tokenized: that alone would take seconds."""
    info, longest = model.engine.info, model.tokenizer.longest
    if info is not None and longest and (least := -(-len(text.encode("utf-8", "replace")) // longest)) > info.context:
        raise too_long(info.context, f"at least {least}", param)


def too_long(most: int, found: int | str, param: str) -> Problem:
    """More tokens than a context takes."""
    return Problem(
        f"This model's maximum context length is {most} tokens; the prompt has {found}. "
        "Shorten it, or serve with a larger --ctx.",
        param=param,
        code="context_length_exceeded",
    )


def _behind(model: ServedModel, ask: Ask, tokens: list[int]) -> list[int]:
    """The prompt behind what came before it, which has the beginning."""
    if ask.before and tokens and tokens[0] == model.tokenizer.bos:
        tokens = tokens[1:]
    tokens, most = [*ask.before, *tokens], model.tokenizer.n_vocab
    if wrong := [t for t in tokens if not 0 <= t < most]:
        raise Problem(f"there is no token {wrong[0]}: ids are between 0 and {most - 1}", param="prompt")
    return tokens


def _raw(model: ServedModel, ask: Ask) -> list[int]:
    if ask.suffix is not None:
        return _filled(model, ask)
    if ask.write is not None:
        made = model.prompts.seal.through(ask.write, ask.parts)
        check_length(model, made.plain, "prompt")
        return model.prompts.ids(made)
    if isinstance(ask.prompt, list):
        return list(ask.prompt)
    check_length(model, ask.prompt or "", "prompt")
    return model.tokenizer.encode(ask.prompt or "", add_special=ask.add_special, parse_special=ask.parse_special)


def _filled(model: ServedModel, ask: Ask) -> list[int]:
    """Fill in the middle, in the order prefix, suffix, middle, with the vocabulary's tokens for it."""
    t = model.tokenizer
    check_length(model, (ask.prompt if isinstance(ask.prompt, str) else "") + (ask.suffix or ""), "prompt")
    marks = [t.special_id(role) for role in ("fim_pre", "fim_suf", "fim_mid")]
    if None in marks:
        raise Problem(f"the model {model.name!r} has no tokens for filling in the middle", param="suffix")
    before, behind, middle = (m for m in marks if m is not None)
    prompt = ask.prompt if isinstance(ask.prompt, list) else t.encode(ask.prompt or "", add_special=False)
    start = [t.bos] if t.add_bos and t.bos is not None else []
    return [*start, before, *prompt, behind, *t.encode(ask.suffix or "", add_special=False), middle]


def _sampling(model: ServedModel, ask: Ask) -> Any:
    try:
        sampling = dataclasses.replace(model.sampling, **ask.sampling)
        check_biases(sampling, model.engine.info.n_vocab if model.engine.info else model.tokenizer.n_vocab)
        return sampling
    except RequestError as error:
        flag, _, why = str(error).partition(" ")
        field = flag.replace("-", "_")
        raise Problem(f"{field} {why}", param=field) from error
