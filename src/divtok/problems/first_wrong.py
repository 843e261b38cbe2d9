"""The first wrong step of a solution of an embedded story, read from its words.

A step is right where each of its equations is one of the story's own; the answer is right where it
is the story's. Once an amount is wrong, no later one can be in the story's equations, so only the
first wrong step is of any meaning: what goes on rightly from it is not looked at. Products may come
earlier than they are needed, and a line may be left out as long as the next one is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from divtok.problems.arithmetic import Story
from divtok.records import FirstWrong, Reason

UNREAD_STEP = "unread_step"  # a kind of reason

_NUMBER = re.compile(r"\d+")
_RESULT = r"\s*(?:=|is|equals|makes?|gives|leaves)\s*(?P<result>-?\d+)"
_INFIX = re.compile(
    r"(?P<left>\d+)\s*(?P<sign>[-+*]|plus|and|minus|less|times|lots of)\s*(?P<right>\d+)"
    rf"(?:\s+more)?{_RESULT}"
)
_PREFIX = re.compile(
    r"(?P<sign>adding|taking|multiplying)\s+(?P<first>\d+)\s+(?:to|from|by)\s+(?P<second>\d+)"
    rf"{_RESULT}",
    re.IGNORECASE,
)
_BOXED = re.compile(r"\\boxed\{(-?\d+)\}")
_ADDING = ("+", "plus", "and", "adding")
_TAKING = ("-", "minus", "less", "taking")

_Said = tuple[str, int, int, int]  # sign, the operands, the result


def first_wrong(story: Story, steps: Sequence[str]) -> FirstWrong:
    """The first of the steps that is not as in the story; not known behind one that is not read."""
    amounts = {_said(e.sign, e.left, e.right, e.result) for e in story.equations}
    for place, step in enumerate(steps):
        equations = _equations(step)
        answers = [int(found) for found in _BOXED.findall(step)]
        if not answers and not equations and place == len(steps) - 1:
            answers = [int(found) for found in _NUMBER.findall(step)][:1]
        if any(e not in amounts for e in equations) or any(a != story.answer for a in answers):
            return FirstWrong(place)
        if len(_NUMBER.findall(step)) != 3 * len(equations) + len(answers):
            words = f"step {place + 1} has numbers in no wording that is known"
            return FirstWrong(None, Reason(UNREAD_STEP, words))
    return FirstWrong(None)


def _equations(step: str) -> list[_Said]:
    found = [
        _said(m["sign"], int(m["left"]), int(m["right"]), int(m["result"]))
        for m in _INFIX.finditer(step)
    ]
    for m in _PREFIX.finditer(step):
        first, second = int(m["first"]), int(m["second"])
        found.append(_said(m["sign"].lower(), second, first, int(m["result"])))
    return found


def _said(sign: str, left: int, right: int, result: int) -> _Said:
    """The same for all wordings of an equation, and for both orders where order does not matter."""
    if sign in _TAKING:
        return "-", left, right, result
    return "+" if sign in _ADDING else "*", min(left, right), max(left, right), result
