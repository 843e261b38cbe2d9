r"""Read the confidence that a model states about its own answer, and the answer it is about.

After the answer (`read_rating`): the last `\boxed{}` of the reply holds an integer from 0 to 10,
which is divided by ten. In the response: the last JSON value of the right shape holds the answer
and the confidence. It is either an object with final_answer and confidence (`read_object`), or an
array of objects with candidate and confidence (`read_candidates`), where the highest confidence
wins, the first of equal ones.

A confidence is a number or a numeric text. With a percent sign, or above 1 and up to 100, it is a
percentage. Values are taken as stated: nothing is clamped, and a distribution that does not sum to
1 stays as it is. Everything else (negative, above 100, words, ranges, null, booleans, values that
are cut off) is not a confidence, with a reason. A candidate whose confidence cannot be read might
be the likeliest, so with one of those among several there is neither winner nor answer; a lone
candidate is the answer all the same. Without an answer there is no confidence either.

Pure functions of text: no model, no tokens, no grading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from divtok.protocols.boxed import AnswerSpan, find_boxed
from divtok.protocols.loose_json import Node, find_last
from divtok.protocols.protocol import Protocol
from divtok.protocols.wording import Wording
from divtok.records import Reason, Statement

NO_CANDIDATE = r"no likeliest JSON candidate and no \boxed{} found"

_SHOWN_CHARACTERS = 40
# A longer text is not a number that anybody states, and need not be read as one.
_MAX_NUMBER = 40

_NUMBER = re.compile(
    r"(?P<value>[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?)"
    r"(?P<percent>\s{0,8}\\?%)?"
)
_RATING = re.compile(r"(?P<value>10|[0-9])(?:\.0{1,8})?(?:\s?/\s?10(?:\.0{1,8})?)?")
# What may surround a rating without changing it.
_AROUND = (
    re.compile(r"(?P<dollar>\$\$?)(?P<inner>[^$]*)(?P=dollar)"),
    re.compile(r"\\[(\[](?P<inner>.*)\\[)\]]", re.DOTALL),
    re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:bf|it|rm))\s?\{(?P<inner>[^{}]*)\}"),
)
_NONE_OF_THE_ABOVE = re.compile(
    r"(?:\\text\{)?\W{0,8}none of (?:the )?(?:above|these)"
    r"(?: (?:answers|options|candidates))?\W{0,8}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Stated:
    """An answer and the confidence stated in it; without an answer there is no confidence."""

    answer: AnswerSpan | None
    statement: Statement


def read_rating(text: str) -> Statement:
    """The confidence in a reply to the question how sure the model is of its answer."""
    box = find_boxed(text)
    if box is None:
        return _unstated(r"no \boxed{} found")
    content = box.content
    if len(content) <= _MAX_NUMBER:
        for around in _AROUND * 2:  # one may be inside another
            if match := around.fullmatch(content):
                content = match["inner"].strip()
    rating = _RATING.fullmatch(content)
    if rating is None:
        return _unstated(f"the box holds {_shown(box.content)}, not an integer from 0 to 10")
    return Statement(int(rating["value"]) / 10)


def stating_protocol(
    name: str, summary: str, *, wording: Wording, read: Callable[[str], Stated], no_answer: str
) -> Protocol:
    """A protocol that asks for the answer and a confidence in JSON.

    Its own words have no system prompt, which would ask for a box. Where the JSON gives no answer
    the last box counts, since it can be graded although it has no stated confidence.
    """
    return Protocol(
        name,
        summary,
        messages=wording.messages,
        find_answer=lambda text: read(text).answer or find_boxed(text),
        no_answer=no_answer,
        read_confidence=lambda text: read(text).statement,
        wording=wording,
    )


def read_object(text: str) -> Stated:
    """The final_answer of the last JSON object that has one, and the confidence beside it."""
    found = find_last(text, "{", "finalanswer")
    if found is None:
        return _nothing("no JSON object with a final_answer found")
    return _member(found, "final_answer")


def read_candidates(text: str, *, skip_none: bool = False) -> Stated:
    """The likeliest of the last JSON array of candidates; "None of the above" may be skipped."""
    found = find_last(text, "[", "candidate")
    if not isinstance(found, list):
        return _nothing("no JSON array of candidates found")
    return _likeliest(found, skip_none=skip_none)


def _likeliest(array: Sequence[Node], *, skip_none: bool) -> Stated:
    rivals = [node for node in array if not (skip_none and _is_none_of_the_above(node))]
    if not rivals:
        return _nothing('there is no candidate but "None of the above"')
    if len(rivals) == 1:
        percentages = any(_is_percentage(node) for node in array if node is not rivals[0])
        return _member(rivals[0], "candidate", percentages=percentages)
    best: Node = None
    highest = -1.0
    percentages = any(_is_percentage(node) for node in array)
    for node in rivals:
        statement = _confidence(node, percentages=percentages)
        if statement.value is None:
            which = f"candidate {array.index(node) + 1} of {len(array)}"
            return _nothing(f"the likeliest is not known, because of {which}: {statement.reason}")
        if statement.value > highest:
            best, highest = node, statement.value
    return _member(best, "candidate", percentages=percentages)


def _is_percentage(node: Node) -> bool:
    """Whether a candidate's confidence can only be a percentage: signed so, or above 1."""
    value = node.get("confidence") if isinstance(node, dict) else None
    if value is None or isinstance(value, dict | list) or value.fault is not None:
        return False
    text = value.content.strip()
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_NUMBER else None
    return match is not None and bool(match["percent"] or Decimal(match["value"]) > 1)


def _member(node: Node, name: str, *, percentages: bool = False) -> Stated:
    """The answer under `name` in an object, with the confidence beside it."""
    key = name.replace("_", "")
    if not isinstance(node, dict) or key not in node:
        return _nothing(f"the {name} is missing")
    value = node[key]
    if value is None:
        return _nothing(f"the {name} cannot be made out")
    if isinstance(value, dict | list):
        return _nothing(f"the {name} is {_kind(value)}, not a text or a number")
    if value.fault is not None:
        return _nothing(f"the {name} {_shown(value.content)} is {value.fault}")
    if not value.quoted and value.content in ("null", "None"):
        return _nothing(f"the {name} is null")
    content = value.content.strip()
    if not content:
        return _nothing(f"the {name} is blank")
    statement = _confidence(node, percentages=percentages)
    return Stated(AnswerSpan(value.start, value.stop, content), statement)


def _confidence(node: Node, *, percentages: bool = False) -> Statement:
    if not isinstance(node, dict):
        return _unstated("it is not an object")
    if "confidence" not in node:
        return _unstated("the confidence is missing")
    value = node["confidence"]
    if value is None:
        return _unstated("the confidence cannot be made out")
    if isinstance(value, dict | list):
        return _unstated(f"the confidence is {_kind(value)}, not a number")
    if value.fault is not None:
        return _unstated(f"the confidence {_shown(value.content)} is {value.fault}")
    return _number(value.content.strip(), percentages=percentages)


def _number(text: str, *, percentages: bool) -> Statement:
    """`percentages`: others beside it are, so that 1 is one percent and not certainty."""
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_NUMBER else None
    if match is None:
        what = f"{_shown(text)} is not a number" if text else "is blank"
        return _unstated(f"the confidence {what}")
    # Decimals, so that 99.9 % is the same number as 0.999.
    value = Decimal(match["value"])
    if value.is_signed():
        return _unstated(f"the confidence {_shown(text)} is negative")
    if value > 100:
        return _unstated(f"the confidence {_shown(text)} is above 100")
    is_percentage = match["percent"] or value > 1 or (percentages and value == 1)
    return Statement(float(value / 100 if is_percentage else value))


def _is_none_of_the_above(node: Node) -> bool:
    value = node.get("candidate") if isinstance(node, dict) else None
    if value is None or isinstance(value, dict | list):
        return False
    return _NONE_OF_THE_ABOVE.fullmatch(" ".join(value.content.split())) is not None


def _nothing(why: str) -> Stated:
    return Stated(None, _unstated(why))


def _unstated(why: str) -> Statement:
    return Statement(None, Reason("not_stated", why))


def _kind(value: Node) -> str:
    return "an object" if isinstance(value, dict) else "an array"


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return f'"{cut}"'
