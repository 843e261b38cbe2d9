r"""Find the final answer of a response, where its protocol asks for it.

"cot" asks for `\boxed{...}`. The protocols with a stated confidence ask for JSON; where that gives
no answer the last box counts, since the answer can be graded even though no confidence is stated
in it. Not known here: what an answer means, nor whether it is right.
"""

from __future__ import annotations

from divtok.errors import UsageError, did_you_mean
from divtok.protocols.boxed import AnswerSpan, find_boxed
from divtok.protocols.stated import read_stated

# What a response without an answer lacks, for each protocol.
NO_ANSWER_FOUND = {
    "cot": r"no \boxed{} found",
    "verbalized": r"no JSON final_answer and no \boxed{} found",
    "verbalized_top2": r"no likeliest JSON candidate and no \boxed{} found",
    "verbalized_distribution": r"no likeliest JSON candidate and no \boxed{} found",
}


def find_answer(text: str, protocol: str = "cot") -> AnswerSpan | None:
    """The final answer and where it stands in the response, None where there is none."""
    check_protocol(protocol)
    stated = None if protocol == "cot" else read_stated(text, protocol).answer
    return stated or find_boxed(text)


def extract_answer(text: str, protocol: str = "cot") -> str | None:
    """The final answer as written in the response, or None where there is none."""
    span = find_answer(text, protocol)
    return None if span is None else span.content


def check_protocol(protocol: str) -> None:
    if protocol not in NO_ANSWER_FOUND:
        raise UsageError(
            f"Unknown protocol '{protocol}'.", next_step=did_you_mean(protocol, NO_ANSWER_FOUND)
        )
