"""Equal as JSON values: the order of keys and the way a number is written do not matter."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, NoReturn

from divtok.grade.grader import grader
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, undetermined


@grader("json")
def json_value(gold: str, answer: str) -> Judgement:
    """The same JSON value, whatever the order of keys."""
    values: list[Any] = []
    for text, name in ((gold, "gold answer"), (answer, "answer")):
        try:
            values.append(_read(text))
        except (ValueError, ArithmeticError, RecursionError) as error:
            kind = "gold_unread" if text is gold else "answer_unread"
            return undetermined(kind, f"the {name} is not JSON: {error}")
    return CORRECT if _same(*values) else INCORRECT


def _read(text: str) -> Any:
    # Decimals, so that 1, 1.0 and 1e0 are one number and 0.1 is itself.
    return json.loads(
        text,
        parse_float=Decimal,
        parse_int=Decimal,
        parse_constant=_refused,
        object_pairs_hook=_distinct,
    )


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has one key twice")
    return found


def _same(left: Any, right: Any) -> bool:
    """By type as well: true is not the number 1."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right
