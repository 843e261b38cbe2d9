"""Answers against gold answers, row by row: the graders of `divtok grade`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from divtok.api.rows import RowsLike, at_hand, cells, fields_of, is_missing
from divtok.api.scoring import not_text
from divtok.api.tables import Records
from divtok.grade import grade_trajectories, judge_answer
from divtok.grade.grader import DEFAULT_TIME_LIMIT, DEFAULT_WORKERS
from divtok.protocols.extract import Extract
from divtok.protocols.given import protocol_named
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Grade, Reason, Trajectory, Verdict

_SHOWN = ("key", "extracted", "verdict", "reason")


def grade(
    rows: RowsLike,
    *,
    columns: Mapping[str, str] | None = None,
    grader: str | None = None,
    protocol: str | Path = "cot",
    workers: int = DEFAULT_WORKERS,
    time_limit: float = DEFAULT_TIME_LIMIT,
    extract: Extract = "boxed",
) -> Records[Grade]:
    """Compare answers with gold answers: one grade for each row, in order.

    `rows` are pairs (gold, answer), or dicts or a DataFrame with `gold` and `answer`; or with
    `gold` and `response`, whose final answer is looked for as the protocol says.
    `columns={"gold": "target"}` says where else they are. `grader` is by default the protocol's
    own. `extract="released"` finds an answer where there is no box, see `extract_answer`, and
    `fallback` says how. A row that cannot be decided is `undetermined`, with a reason: one row
    never ends the call.

    Example:
        >>> import divtok
        >>> rows = [
        ...     {"gold": "1/2", "response": "It is half, so \\\\boxed{0.5}."},
        ...     {"gold": "7", "response": "I do not know."},
        ... ]
        >>> [grade.verdict.value for grade in divtok.grade(rows)]
        ['correct', 'unanswered']
    """
    rows = at_hand(rows)
    protocol = protocol_named(protocol)
    grader = PROTOCOLS.get(protocol).grader if grader is None else grader
    kind = "response" if "response" in fields_of(rows, columns) else "answer"
    given = [
        (row, row) if isinstance(row, Reason) else (text_of("gold answer", row[0]), row[1])
        for row in cells(rows, ("gold", kind), columns)
    ]
    options: dict[str, Any] = {"grader": grader, "time_limit": time_limit}
    if kind == "answer":
        found = [_judged(str(i), gold, answer, options) for i, (gold, answer) in enumerate(given)]
        return Records(Grade, found, shown=_SHOWN)
    graded = grade_trajectories(
        (
            (_trajectory(i, response, protocol), None if isinstance(gold, Reason) else gold)
            for i, (gold, response) in enumerate(given)
        ),
        workers=workers,
        extract=extract,
        **options,
    )
    found = [
        replace(grade, verdict=Verdict.UNDETERMINED, reason=gold)
        if isinstance(gold, Reason)
        else grade
        for grade, (gold, _) in zip(graded, given, strict=True)
    ]
    return Records(Grade, found, shown=_SHOWN)


def _judged(key: str, gold: str | Reason | None, answer: object, options: dict[str, Any]) -> Grade:
    text = answer if isinstance(answer, Reason) else text_of("answer", answer)
    for found in (gold, text):
        if isinstance(found, Reason):
            extracted = None if isinstance(text, Reason) else text
            return Grade(key, extracted, Verdict.UNDETERMINED, found)
    judgement = judge_answer(gold=gold, answer=text, **options)
    return Grade(key, text, judgement.verdict, judgement.reason)


def text_of(name: str, value: object) -> str | Reason | None:
    """A number or a text as text; None where there is nothing, or why it is neither."""
    if is_missing(value):
        return None
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        try:
            value = str(value)
        except ValueError:  # Python writes 4,300 digits at most
            return Reason("not_text", f"the {name} has too many digits to be written out")
    return not_text(name, value) or str(value)


def _trajectory(place: int, response: object, protocol: str) -> Trajectory:
    """A response as grading takes it; one that is no text has failed."""
    why = response if isinstance(response, Reason) else not_text("response", response)
    return Trajectory(
        key=str(place),
        problem_id=str(place),
        benchmark="rows",
        sample=0,
        generator="",
        prompt_ids=(),
        token_ids=(),
        text=response if isinstance(response, str) and why is None else "",
        finish_reason="unknown" if why is None else "failed",
        protocol=protocol,
        sampling=None,
        reason=why,
    )
