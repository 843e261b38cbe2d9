"""Questions and responses as token ids, through a tokenizer's own chat template.

Works on a tokenizer alone, so that generating, scoring one answer and serving all ask in the same
way. Thinking is off; text of a user can never smuggle in a control token.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from divtok.errors import ModelError
from divtok.problems.prompts import Message, fold_system_into_user, messages_for

_MARKER = "\ue000\ue001\ue000"  # characters for private use, which no template and no prompt has


def prompt_ids(tokenizer: Any, question: str, *, protocol: str = "cot") -> tuple[int, ...]:
    """Token ids of the whole prompt, up to where the response begins."""
    controls = _control_tokens(tokenizer)
    if not any(control in question for control in controls):
        rendered = _render(tokenizer, messages_for(question, protocol=protocol))
        return tuple(_encode(tokenizer, rendered))
    # The question spells a control token. Encode it apart, as plain text.
    around = _render(tokenizer, messages_for(_MARKER, protocol=protocol)).split(_MARKER)
    if len(around) == 1:
        raise ModelError(
            f"The chat template of '{tokenizer.name_or_path}' leaves out or rewrites the question.",
            next_step="Use a tokenizer whose template passes messages on unchanged.",
        )
    ids = _encode(tokenizer, around[0])
    for after in around[1:]:
        ids += _plain_ids(tokenizer, question, controls) + _encode(tokenizer, after)
    return tuple(ids)


def response_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a response that came as text: nothing added, special tokens as plain text."""
    return tuple(_encode(tokenizer, text, split_special_tokens=True))


def _render(tokenizer: Any, messages: list[Message]) -> str:
    from jinja2 import TemplateError

    if not tokenizer.chat_template:
        raise ModelError(
            f"The tokenizer '{tokenizer.name_or_path}' has no chat template.",
            next_step="Use the instruct or chat version of the model.",
        )
    try:
        return _apply(tokenizer, messages)
    except TemplateError:
        pass  # Gemma's older templates refuse a system role.
    try:
        return _apply(tokenizer, fold_system_into_user(messages))
    except TemplateError as error:
        raise ModelError(
            f"The chat template of '{tokenizer.name_or_path}' fails: {error}.",
            next_step="Repair the template in the tokenizer's folder, or use another model.",
        ) from error


def _apply(tokenizer: Any, messages: list[Message]) -> str:
    return tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )


def _encode(tokenizer: Any, text: str, **options: Any) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, **options)["input_ids"])


def _plain_ids(tokenizer: Any, text: str, controls: set[str]) -> list[int]:
    """Ids of a text that spells control tokens, each cut behind its first character.

    `split_special_tokens` alone would leave whole the added tokens that are not called special, as
    Qwen's <think> and <tool_call>.
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
