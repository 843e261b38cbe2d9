"""What a protocol is: how a question is asked, and where a response to it holds its answer.

One file in `kinds/` for each; others come through the entry-point group `divtok.protocols`. A
protocol works on text: it knows no tokenizer, and not whether an answer is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from divtok.protocols.boxed import AnswerSpan
from divtok.records import Statement
from divtok.registry import Registry

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way to ask. `messages` takes the question; the other functions take a response's text.

    Without `read_confidence` a response states no confidence, and the generator has to be asked in
    a further turn how sure it is.
    """

    name: str
    summary: str
    messages: Callable[[str], list[Message]]
    find_answer: Callable[[str], AnswerSpan | None]
    no_answer: str  # what a response without an answer lacks
    read_confidence: Callable[[str], Statement] | None = None
    grader: str = "maths"  # what judges its answers where the benchmark does not say

    @property
    def states_confidence(self) -> bool:
        return self.read_confidence is not None


def asking(system: str) -> Callable[[str], list[Message]]:
    """The bare question, after a system prompt that says how to answer."""
    return lambda question: [
        {"role": "system", "content": system},
        {"role": "user", "content": question},
    ]


PROTOCOLS: Registry[Protocol] = Registry(
    "protocol", group="divtok.protocols", home="divtok.protocols.kinds"
)
