"""What a model is asked: the messages of a protocol, and the further question how sure it is.

It knows words only. Each tokenizer's own chat template turns messages into token ids, in
`divtok.protocols.encode`.
"""

from __future__ import annotations

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.wording import Message, is_reference, own_wording, words_of

# Asked in a further turn, after the answer, unless a user's wording has words of its own for it.
CONFIDENCE_QUESTION = own_wording("cot").follow_up or ""


def messages_for(question: str, *, protocol: str = "cot") -> list[Message]:
    """The chat messages that ask one question under one protocol."""
    return PROTOCOLS.get(protocol).messages(question)


def follow_up_for(protocol: str) -> str:
    """What asks, after the answer, how sure the model is."""
    own = words_of(protocol).follow_up if is_reference(protocol) else None
    return CONFIDENCE_QUESTION if own is None else own


def fold_system_into_user(messages: list[Message]) -> list[Message]:
    """For templates without a system role, such as Gemma 1 and 2: before the first user turn."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, first, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *rest]
