"""Questions, responses and further questions as token ids, through a tokenizer's own chat template.

Works on a tokenizer alone, so that generating, scoring one answer and serving all ask in the same
way. Thinking is off; text of a user can never smuggle in a control token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any

from divtok.errors import ModelError
from divtok.protocols.prompts import (
    fold_system_into_user,
    follow_up_for,
    messages_for,
)
from divtok.protocols.templates import TemplateFailed, render
from divtok.protocols.wording import Message

# Stand-ins for texts: characters for private use, which no template and no prompt has.
_MARKER = "\ue000\ue001\ue000"
_QUESTION = "\ue000\ue002\ue000"
_RESPONSE = "\ue000\ue003\ue000"


def prompt_ids(tokenizer: Any, question: str, *, protocol: str = "cot") -> tuple[int, ...]:
    """Token ids of the whole prompt, up to where the response begins."""

    def render(text: str) -> str:
        return _render(tokenizer, messages_for(text, protocol=protocol))

    return tuple(_ids_around(tokenizer, render, question))


def response_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a response that came as text: nothing added, special tokens as plain text."""
    return tuple(_encode(tokenizer, text, split_special_tokens=True))


def plain_prompt_ids(tokenizer: Any, question: str) -> tuple[int, ...]:
    """The bare question and a newline, after a begin-of-text token where the tokenizer adds one.

    No chat template, and no control token that the question happens to spell.
    """
    return text_ids(tokenizer, question + "\n", begin=_adds_begin(tokenizer))


def repr_prompt_ids(tokenizer: Any, question: str, *, protocol: str = "cot") -> tuple[int, ...]:
    """Python's repr of the chat messages as plain text, without a chat template."""
    return text_ids(
        tokenizer, repr(messages_for(question, protocol=protocol)), begin=_adds_begin(tokenizer)
    )


def _adds_begin(tokenizer: Any) -> bool:
    """Whether the tokenizer puts a begin-of-text token before a text by itself."""
    begin = tokenizer.bos_token_id
    return begin is not None and list(tokenizer("0")["input_ids"][:1]) == [begin]


def text_ids(tokenizer: Any, text: str, *, begin: bool) -> tuple[int, ...]:
    """A user's text as ids, after the begin-of-text token if asked for; no other control token.

    With it, both are encoded as one text unless the user's spells a control token.
    """
    controls = _control_tokens(tokenizer)
    if any(control in text for control in controls):
        first = (tokenizer.bos_token_id,) if begin else ()
        return (*first, *_plain_ids(tokenizer, text, controls))
    whole = f"{tokenizer.bos_token}{text}" if begin else text
    return tuple(_encode(tokenizer, whole))


def follow_up_ids(
    tokenizer: Any,
    question: str,
    *,
    prompt: Sequence[int],
    response: Sequence[int],
    end_ids: Collection[int],
    protocol: str = "cot",
    follow_up: str | None = None,
) -> tuple[int, ...]:
    """Token ids of the whole conversation with a further question, up to where its reply begins.

    `follow_up` is that question, by default the protocol's own.

    The ids that asked `question` and those of the response are kept as they are, but for the
    response's closing end tokens; only what the template puts after a response is encoded. A
    template that writes earlier turns differently, as Qwen3's does without an empty think block,
    therefore changes nothing of what the model has read and written.
    """
    _check_prompt(tokenizer, question, prompt, protocol)
    stop = len(response)
    while stop and response[stop - 1] in end_ids:
        stop -= 1

    def render(text: str) -> str:
        return _further_turn(tokenizer, text, protocol)

    asked = follow_up_for(protocol) if follow_up is None else follow_up
    return (*prompt, *response[:stop], *_ids_around(tokenizer, render, asked))


def _check_prompt(tokenizer: Any, question: str, prompt: Sequence[int], protocol: str) -> None:
    """Refuse ids that do not ask the question.

    What comes before it may differ: some templates put the current date there.
    """
    own = prompt_ids(tokenizer, question, protocol=protocol)
    before, *_ = _render(tokenizer, messages_for(_MARKER, protocol=protocol)).split(_MARKER)
    asked = own[len(_encode(tokenizer, before)) :]
    if tuple(prompt[len(prompt) - len(asked) :]) != asked:
        raise ModelError(
            f"The prompt ids are not what '{tokenizer.name_or_path}' makes of the question "
            f"'{question[:60]}'.",
            next_step="Use the tokenizer, the question and the protocol they were made with.",
        )


def _further_turn(tokenizer: Any, text: str, protocol: str) -> str:
    """What the template puts after a response: its end, the new turn, and a reply's beginning."""
    # Folded, since some templates move a system prompt into the last turn, as Mistral's do.
    first = fold_system_into_user(messages_for(_QUESTION, protocol=protocol))
    further = [{"role": "assistant", "content": _RESPONSE}, {"role": "user", "content": text}]
    _, found, after = _render(tokenizer, [*first, *further]).partition(_RESPONSE)
    if not found or _RESPONSE in after or _QUESTION in after:
        raise ModelError(
            f"The chat template of '{tokenizer.name_or_path}' leaves out, repeats or rewrites "
            "earlier turns, so that nothing can be asked after a response.",
            next_step="Use a tokenizer whose template passes earlier messages on unchanged, or "
            "leave out the estimators that ask a further question.",
        )
    return after


def _ids_around(tokenizer: Any, render: Callable[[str], str], text: str) -> list[int]:
    """Token ids of `render(text)`, in which every control token comes from the template."""
    controls = _control_tokens(tokenizer)
    if not any(control in text for control in controls):
        return _encode(tokenizer, render(text))
    # The text spells a control token. Encode it apart, as plain text.
    around = render(_MARKER).split(_MARKER)
    if len(around) == 1:
        raise ModelError(
            f"The chat template of '{tokenizer.name_or_path}' leaves out or rewrites the question.",
            next_step="Use a tokenizer whose template passes messages on unchanged.",
        )
    ids = _encode(tokenizer, around[0])
    for after in around[1:]:
        ids += _plain_ids(tokenizer, text, controls) + _encode(tokenizer, after)
    return ids


def _render(tokenizer: Any, messages: list[Message]) -> str:
    if not tokenizer.chat_template:
        raise ModelError(
            f"The tokenizer '{tokenizer.name_or_path}' has no chat template.",
            next_step="Use the instruct or chat version of the model.",
        )
    try:
        return _apply(tokenizer, messages)
    except TemplateFailed:
        pass  # Gemma's older templates refuse a system role.
    try:
        return _apply(tokenizer, fold_system_into_user(messages))
    except TemplateFailed as error:
        raise ModelError(
            f"The chat template of '{tokenizer.name_or_path}' fails: {error}.",
            next_step="Repair the template in the tokenizer's folder, or use another model.",
        ) from error


def _apply(tokenizer: Any, messages: list[Message]) -> str:
    return render(tokenizer, messages, add_generation_prompt=True, enable_thinking=False)


def _encode(tokenizer: Any, text: str, **options: Any) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, **options)["input_ids"])


def _plain_ids(tokenizer: Any, text: str, controls: set[str]) -> list[int]:
    """Ids of a text that spells control tokens, each cut after its first character.

    `split_special_tokens` alone would keep whole the added tokens that are not called special, such
    as Qwen's <think> and <tool_call>.
    """
    starts = re.finditer("(?=" + "|".join(map(re.escape, controls)) + ")", text)
    cuts = [0, *(start.start() + 1 for start in starts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    return [i for piece in pieces for i in _encode(tokenizer, piece, split_special_tokens=True)]


def _control_tokens(tokenizer: Any) -> set[str]:
    return {
        str(token)
        for token in (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab())
        if str(token).strip()
    }
