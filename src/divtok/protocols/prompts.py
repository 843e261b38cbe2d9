"""What a model is asked: the messages of a protocol, and the further question how sure it is.

It knows words only. Each tokenizer's own chat template turns messages into token ids, in
`divtok.protocols.encode`.
"""

from __future__ import annotations

from divtok.protocols.protocol import PROTOCOLS, Message

# Asked in a further turn, after the answer.
CONFIDENCE_QUESTION = (
    "How sure are you that your answer is right? Give an integer from 0 (not at all) to 10 "
    "(certain) within \\boxed{}."
)


def messages_for(question: str, *, protocol: str = "cot") -> list[Message]:
    """The chat messages that ask one question under one protocol."""
    return PROTOCOLS.get(protocol).messages(question)


def fold_system_into_user(messages: list[Message]) -> list[Message]:
    """For templates without a system role, such as Gemma 1 and 2: before the first user turn."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, first, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *rest]
