"""The final answer of a response, found where its protocol asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.fallbacks import asks_for_box, find_fallback
from divtok.protocols.given import protocol_named
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.records import Fallback

# Only where the protocol says, or, where that is a box, in the places of the paper's released code.
Extract = Literal["boxed", "released"]


def find_answer(text: str, protocol: str = "cot") -> AnswerSpan | None:
    """The final answer and its place in the response, None where there is none."""
    return PROTOCOLS.get(protocol).find_answer(text)


def find_answer_by(
    text: str, protocol: Protocol, extract: Extract
) -> tuple[AnswerSpan | None, Fallback | None]:
    """The final answer, and the fallback it was found by, if by any."""
    span = protocol.find_answer(text)
    if span is None and extract == "released" and asks_for_box(protocol):
        return find_fallback(text) or (None, None)
    return span, None


def extract_answer(
    text: str, protocol: str | Path = "cot", extract: Extract = "boxed"
) -> str | None:
    """The final answer as written in the response, or None where there is none.

    `protocol` is a name (`divtok ls protocols`) or the path of a wording file.
    With `extract="released"` a response without a box has one all the same, as in the paper's
    released code: in an unclosed box, behind "the answer is", or the last number.

    Example:
        >>> import divtok
        >>> divtok.extract_answer("So it is \\\\boxed{7}.")
        '7'
        >>> divtok.extract_answer("So there are 7 apples.", extract="released")
        '7'
    """
    span, _ = find_answer_by(text, PROTOCOLS.get(protocol_named(protocol)), extract)
    return None if span is None else span.content
