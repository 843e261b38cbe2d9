"""What a protocol is: how a question is asked, and where a response to it holds its answer.

One file in `kinds/` for each, with its words in a YAML file beside it; others come through the
entry-point group `divtok.protocols`. A protocol works on text: it knows no tokenizer, and not
whether an answer is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.wording import Message, Wording, is_reference, kind_of, words_of
from divtok.records import Statement
from divtok.registry import OWN, Registry


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way to ask. `messages` takes the question; the other functions take a response's text.

    Without `read_confidence` a response states no confidence, and the generator has to be asked in
    a further turn how sure it is. `wording` is what `messages` says, where that is data.
    """

    name: str
    summary: str
    messages: Callable[[str], list[Message]]
    find_answer: Callable[[str], AnswerSpan | None]
    no_answer: str  # what a response without an answer lacks
    read_confidence: Callable[[str], Statement] | None = None
    grader: str = "maths"  # what judges its answers where the benchmark does not say
    wording: Wording | None = None

    @property
    def states_confidence(self) -> bool:
        return self.read_confidence is not None


class _Protocols(Registry[Protocol]):
    """Protocols by name; by `KIND@HASH` also those that ask in words of a user's."""

    def get(self, name: str) -> Protocol:
        if not is_reference(name):
            return super().get(name)
        kind = super().get(kind_of(name))
        # Not looked up until somebody asks: answers are found without the words.
        return replace(kind, name=name, messages=partial(_ask_as, name), wording=None)

    def __contains__(self, name: str) -> bool:
        return super().__contains__(kind_of(name))


def _ask_as(protocol: str, question: str) -> list[Message]:
    return words_of(protocol).messages(question)


PROTOCOLS: Registry[Protocol] = _Protocols(
    "protocol", group="divtok.protocols", home="divtok.protocols.kinds"
)


def wording_of(protocol: str) -> Wording | None:
    """The words that a protocol asks in; None where another package has them in its code."""
    return words_of(protocol) if is_reference(protocol) else PROTOCOLS.get(protocol).wording


def said_of(protocol: str) -> str:
    """Which words a protocol asks in and whose they are, as in "cot 1a2b3c4d, divtok's own"."""
    wording = wording_of(protocol)
    if wording is None:
        return f"{protocol}, in the code of {PROTOCOLS.origin(protocol)}"
    by = f"the user's '{wording.name}'"
    if not is_reference(protocol):
        origin = PROTOCOLS.origin(protocol)
        by = "divtok's own" if origin == OWN else f"that of {origin}"
    source = "" if wording.source is None else f" ({wording.source})"
    return f"{wording.kind} {wording.short_hash}, {by}{source}"
