"""What a model is asked: the system prompt and the messages of each protocol.

It knows words only. Turning messages into token ids is done with each tokenizer's own chat template
in `divtok.problems.encode`.
"""

from __future__ import annotations

from divtok.errors import UsageError, did_you_mean

Message = dict[str, str]

# The paper's reasoning prompt.
SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."

PROTOCOLS = ("cot",)


def messages_for(question: str, *, protocol: str = "cot") -> list[Message]:
    """The chat messages that ask one question under one protocol."""
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"Unknown protocol '{protocol}'.", next_step=did_you_mean(protocol, PROTOCOLS)
        )
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": question},
    ]


def fold_system_into_user(messages: list[Message]) -> list[Message]:
    """For templates without a system role, as Gemma 1 and 2: in front of the first user turn."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, first, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *rest]
