"""Votes among samples that people bring themselves: answers in, one answer for each problem out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import numpy as np

from divtok.api.batch import Confidences
from divtok.api.figures import Values, numbers_of
from divtok.api.grading import text_of
from divtok.api.tables import Records
from divtok.decide.chosen import Candidate, Vote, vote_on
from divtok.decide.votes import (
    Crowd,
    Stop,
    Strategy,
    check_samples,
    checked_strategy,
    crowd_of,
    samples_of,
)
from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import Floats, Ints
from divtok.evaluate.votes import NO_ANSWER
from divtok.grade.grader import DEFAULT_GRADER
from divtok.grade.same_answers import SameAnswers
from divtok.records import Reason

VOTE_FIELDS = ("problem_id", "answer", "confidence", "samples", "correct", "reason")


def vote(
    answers: Iterable[object],
    confidences: Values | None = None,
    problem_ids: Iterable[object] | None = None,
    *,
    strategy: Strategy | None = None,
    grader: str = DEFAULT_GRADER,
    samples: int | None = None,
    stop: Stop = None,
    alike: float | None = None,
    rate: float | None = None,
) -> Records[Vote]:
    """One answer out of several samples of each problem, in the order in which they were sampled.

    `answers` are final answers, None where a sample has none: it has no vote. Those that `grader`
    calls equal are one answer. `problem_ids` says of which problem each is; left out, all are of
    one. `strategy` is "majority", "best" (the most confident sample), "log_odds" (weighted by the
    log-odds of `confidences`) or "weighted", the default with confidences: also by how rarely wrong
    samples agree, so that `confidence` is the chance that the answer is right, were samples
    independent. A sample without a confidence votes as one of 0.5.

    At most `samples` of each problem are taken, and with `stop` fewer: "settled" until no further
    one can change the answer, or a number, such as 0.95, until the vote's confidence reaches it.
    `alike` is the chance that two wrong samples agree, `rate` the share of right ones, to which
    weighted votes shift the confidences. Left out, both are told by how the samples agree, where
    there are 20 problems of three samples; with fewer `alike` is 0.2, and there is no rate. A
    `key` is the place of a sample, from 0 on.

    Example:
        >>> import divtok
        >>> answers, confidences = ["12", "24/2", "13", None], [0.4, 0.5, 0.95, 0.6]
        >>> (vote,) = divtok.vote(answers)
        >>> vote.answer, vote.keys, vote.samples
        ('12', ('0', '1'), 4)
        >>> (vote,) = divtok.vote(answers, confidences, alike=0.5)
        >>> vote.answer, round(vote.confidence, 2)
        ('13', 0.91)
    """
    way = checked_strategy(strategy or ("majority" if confidences is None else "weighted"))
    if way != "majority" and confidences is None:
        raise UsageError(
            f"A vote by '{way}' needs confidences.", next_step="Give them, or take the majority."
        )
    check_samples(samples)
    texts = [_answer(answer) for answer in answers]
    values = _confidences(confidences, len(texts))
    ids = ["0"] * len(texts) if problem_ids is None else [str(i) for i in problem_ids]
    if len(ids) != len(texts):
        raise DataError(
            f"There are {len(texts)} answers but {len(ids)} problem ids.",
            next_step="Both must describe the same samples, in the same order.",
        )
    problems: dict[str, list[int]] = {}
    for place, name in enumerate(ids):
        problems.setdefault(name, []).append(place)
    answer, confidence, size = _in_rows(texts, values, list(problems.values()), grader)
    there = np.arange(answer.shape[1]) < size[:, None]
    seen = crowd_of(np.nonzero(there)[0], answer[there])
    crowd = Crowd(seen.alike if alike is None else alike, seen.rate if rate is None else rate)
    candidates = {
        name: [Candidate(str(place), texts[place]) for place in places]
        for name, places in problems.items()
    }
    taken = samples_of(answer, confidence, size, crowd)
    found = vote_on(candidates, taken, way, most=samples, stop=stop)
    return Records(Vote, found, shown=VOTE_FIELDS)


def _in_rows(
    texts: Sequence[str | None], values: Floats, problems: Sequence[Sequence[int]], grader: str
) -> tuple[Ints, Floats, Ints]:
    """[P, N] numbers of answers and confidences of each problem's samples, and [P] how many."""
    size = np.array([len(places) for places in problems], dtype=np.int64)
    answer = np.full((len(size), int(size.max(initial=1))), NO_ANSWER, dtype=np.int64)
    confidence = np.full(answer.shape, np.nan)
    with ExitStack() as stack:
        same = SameAnswers(stack)
        for row, places in enumerate(problems):
            numbers = same.numbers(grader, [texts[place] for place in places])
            answer[row, : len(places)] = [NO_ANSWER if n is None else n for n in numbers]
            confidence[row, : len(places)] = values[list(places)]
    return answer, confidence, size


def _answer(given: object) -> str | None:
    """A blank answer is none."""
    text = text_of("answer", given)
    if isinstance(text, Reason):
        raise DataError(f"An answer cannot be read: {text}.", next_step="Give texts or numbers.")
    return text if text is not None and text.strip() else None


def _confidences(given: Values | None, answers: int) -> Floats:
    """[N] NaN where there is none."""
    if given is None:
        return np.full(answers, np.nan)
    listed = given.values if isinstance(given, Confidences) else given
    numbers = [np.nan if value is None else value for value in numbers_of(listed)]
    found = np.array(numbers, dtype=np.float64)
    if len(found) != answers:
        raise DataError(
            f"There are {answers} answers but {len(found)} confidences.",
            next_step="Both must describe the same samples, in the same order.",
        )
    if ((found < 0) | (found > 1)).any():
        raise DataError(
            "A confidence lies outside 0 to 1, so it has no log-odds.",
            next_step="Give probabilities.",
        )
    return found
