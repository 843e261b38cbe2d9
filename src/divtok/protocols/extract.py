"""The final answer of a response, found where its protocol asks for it."""

from __future__ import annotations

from pathlib import Path

from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.given import protocol_named
from divtok.protocols.protocol import PROTOCOLS


def find_answer(text: str, protocol: str = "cot") -> AnswerSpan | None:
    """The final answer and its place in the response, None where there is none."""
    return PROTOCOLS.get(protocol).find_answer(text)


def extract_answer(text: str, protocol: str | Path = "cot") -> str | None:
    """The final answer as written in the response, or None where there is none.

    `protocol` is a name (`divtok ls protocols`) or the path of a wording file.

    Example:
        >>> import divtok
        >>> divtok.extract_answer("So it is \\\\boxed{7}.")
        '7'
    """
    span = find_answer(text, protocol_named(protocol))
    return None if span is None else span.content
