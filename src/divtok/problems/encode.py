"""Questions and responses as token ids, through a tokenizer's own chat template.

Works on a tokenizer alone, so that generating, scoring one answer and serving all ask in the same
way. Thinking is off; text of a user can never smuggle in a control token.
"""

from __future__ import annotations

import hashlib
from typing import Any

from divtok.errors import ModelError
from divtok.problems.prompts import Message, fold_system_into_user, messages_for


def prompt_ids(tokenizer: Any, question: str, *, protocol: str = "cot") -> tuple[int, ...]:
    """Token ids of the whole prompt, up to where the response begins."""
    rendered = _render(tokenizer, messages_for(question, protocol=protocol))
    ids = _encode(tokenizer, rendered)
    controls = _control_tokens(tokenizer)
    if not any(control in question for control in controls):
        return tuple(ids)
    # The question spells a control token. Encode it apart, as plain text.
    marker = "\ue000divtok\ue000"
    around = _render(tokenizer, messages_for(marker, protocol=protocol))
    before, after = around.split(marker)
    question_ids = _encode(tokenizer, question, split_special_tokens=True)
    return (*_encode(tokenizer, before), *question_ids, *_encode(tokenizer, after))


def response_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of a response that came as text: nothing added, control tokens as plain text."""
    return tuple(_encode(tokenizer, text, split_special_tokens=True))


def template_digest(tokenizer: Any) -> str:
    """A short fingerprint of the chat template: a changed template makes other trajectories."""
    return hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()[:16]


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
        # Gemma's older templates refuse a system role.
        return _apply(tokenizer, fold_system_into_user(messages))


def _apply(tokenizer: Any, messages: list[Message]) -> str:
    return tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )


def _encode(tokenizer: Any, text: str, **options: Any) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, **options)["input_ids"])


def _control_tokens(tokenizer: Any) -> set[str]:
    return {
        str(token)
        for token in (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab())
        if str(token).strip()
    }
