"""What a model is asked: the messages of each protocol, and the further question how sure it is.

It knows words only. Turning messages into token ids is done with each tokenizer's own chat template
in `divtok.protocols.encode`; reading the answers is the business of `divtok.grade`.
"""

from __future__ import annotations

from typing import Literal, get_args

from divtok.errors import UsageError, did_you_mean

Message = dict[str, str]

# "cot" answers in \boxed{}; the others put the answer and a stated confidence into JSON.
Protocol = Literal["cot", "verbalized", "verbalized_top2", "verbalized_distribution"]
PROTOCOLS: tuple[str, ...] = get_args(Protocol)

# The paper's reasoning prompt.
SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."

# Asked in a further turn, after the answer.
CONFIDENCE_QUESTION = (
    "How sure are you that your answer is right? Give an integer from 0 (not at all) to 10 "
    "(certain) within \\boxed{}."
)

# Asked with the question; {question} is replaced as it stands.
_STATED = {
    "verbalized": """Question: {question}

Reason step by step to your answer: a value or a short exact expression in the form the question \
asks for, not a sentence. Then weigh how likely it is to be right. End with one JSON object that \
gives the answer and your confidence in it, from 0 to 1:
{"final_answer": "your answer", "confidence": "0-1"}""",
    "verbalized_top2": """Question: {question}

Reason step by step to your 2 best answers and the probability that each is right. An answer is a \
value or a short exact expression in the form the question asks for, not a sentence. End with one \
JSON array:
[{"candidate": "most likely answer", "confidence": "0-1"}, \
{"candidate": "second most likely answer", "confidence": "0-1"}]""",
    "verbalized_distribution": """Question: {question}

Reason step by step to your answer. You may propose several possible answers, at most four, each a \
value or a short exact expression in the form the question asks for, not a sentence. Weigh how \
likely each is to be right, and always include "None of the above". End with one JSON array whose \
confidences sum to 1:
[{"candidate": "first answer", "confidence": "0-1"}, \
{"candidate": "second answer", "confidence": "0-1"}, \
{"candidate": "None of the above", "confidence": "0-1"}]""",
}


def messages_for(question: str, *, protocol: str = "cot") -> list[Message]:
    """The chat messages that ask one question under one protocol."""
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"Unknown protocol '{protocol}'.", next_step=did_you_mean(protocol, PROTOCOLS)
        )
    if protocol == "cot":
        return [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": question},
        ]
    # No system prompt: it would ask for a box where these ask for JSON.
    return [{"role": "user", "content": _STATED[protocol].replace("{question}", question)}]


def fold_system_into_user(messages: list[Message]) -> list[Message]:
    """For templates without a system role, as Gemma 1 and 2: in front of the first user turn."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, first, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *rest]
