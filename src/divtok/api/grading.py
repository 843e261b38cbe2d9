"""Answers against gold answers, row by row: the graders of `divtok grade`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from divtok.api.rows import RowsLike, cells, fields_of
from divtok.api.scoring import not_text
from divtok.api.tables import Records
from divtok.errors import UsageError
from divtok.grade import grade_trajectories, judge_answer
from divtok.grade.answers import clean_gold
from divtok.grade.grader import DEFAULT_GRADER, DEFAULT_TIME_LIMIT, DEFAULT_WORKERS
from divtok.records import Grade, Trajectory

_SHOWN = ("key", "extracted", "verdict", "reason")


def grade(
    rows: RowsLike,
    *,
    columns: Mapping[str, str] | None = None,
    grader: str = DEFAULT_GRADER,
    protocol: str = "cot",
    workers: int = DEFAULT_WORKERS,
    time_limit: float = DEFAULT_TIME_LIMIT,
) -> Records[Grade]:
    """Compare answers with gold answers: one grade for each row, in order.

    `rows` are pairs (gold, answer), or dicts or a DataFrame with `gold` and `answer`; or with
    `gold` and `response`, whose final answer is looked for as the protocol says.
    `columns={"gold": "target"}` says where else they are. A row that cannot be decided is
    `undetermined`, with a reason.

    Example:
        >>> import divtok
        >>> rows = [
        ...     {"gold": "1/2", "response": "It is half, so \\\\boxed{0.5}."},
        ...     {"gold": "7", "response": "I do not know."},
        ... ]
        >>> [grade.verdict.value for grade in divtok.grade(rows)]
        ['correct', 'unanswered']
    """
    if isinstance(rows, Iterator):
        rows = list(rows)  # looked at twice
    if "response" in fields_of(rows, columns):
        given = cells(rows, ("gold", "response"), columns)
        trajectories = [_trajectory(i, text, protocol) for i, (_, text) in enumerate(given)]
        golds = [_gold(gold) for gold, _ in given]
        found = grade_trajectories(
            zip(trajectories, golds, strict=True),
            grader=grader,
            workers=workers,
            time_limit=time_limit,
        )
        return Records(Grade, found, shown=_SHOWN)
    given = cells(rows, ("gold", "answer"), columns)
    return Records(
        Grade,
        [
            _judged(str(i), _gold(gold), answer, grader=grader, time_limit=time_limit)
            for i, (gold, answer) in enumerate(given)
        ],
        shown=_SHOWN,
    )


def _judged(key: str, gold: Any, answer: object, **options: Any) -> Grade:
    if answer is None or answer != answer:  # NaN: a frame's empty cell
        answer = None
    elif isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise UsageError(
            f"The answer of row {key} is a {type(answer).__name__}, not text.",
            next_step="Give answers as texts, or None where there is none.",
        )
    text = None if answer is None else str(answer)
    judgement = judge_answer(gold=gold, answer=text, **options)
    return Grade(key, text, judgement.verdict, judgement.reason)


def _gold(gold: Any) -> str | None:
    return None if gold is None or gold != gold else clean_gold(gold)


def _trajectory(place: int, response: object, protocol: str) -> Trajectory:
    """A response as grading takes it; one that is no text has failed."""
    why = not_text("response", response)
    return Trajectory(
        key=str(place),
        problem_id=str(place),
        benchmark="rows",
        sample=0,
        generator="",
        prompt_ids=(),
        token_ids=(),
        text=response if isinstance(response, str) else "",
        finish_reason="unknown" if why is None else "failed",
        protocol=protocol,
        sampling=None,
        reason=why,
    )
