"""What responses count as when something is fitted on them: by their grades, or by majority.

Where there are no gold answers, or they must not be used, a response counts as right where it gives
the most frequent answer of its problem. The share that then counts as right is not the accuracy;
`prior` estimates that from how often samples agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divtok.errors import DataError
from divtok.evaluate.metrics import Ints
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.votes import FEWEST_SAMPLES, Agreement, agreement, majority_labels
from divtok.score.fitted import Target

MORE_SAMPLES = "Take several samples of each problem (--samples), 4 or more."


@dataclass(frozen=True, slots=True)
class Voted:
    """[N] numbers of problems, each of one generator, and of answers; negative where none."""

    problem: Ints
    answer: Ints

    def agreement(self, rows: Ints) -> Agreement:
        """Of the problems of these rows, all their samples."""
        some = np.isin(self.problem, self.problem[rows])
        return agreement(self.problem[some], self.answer[some])


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """`label` [N] is what responses count as, None where they cannot be used; `truth` [N] their
    grades, None where there are none. `problem` [N] names whose samples they are.
    """

    label: Sequence[bool | None]
    truth: Sequence[bool | None]
    problem: Sequence[str]
    voted: Voted | None = None

    @property
    def target(self) -> Target:
        return "grades" if self.voted is None else "agreement"

    def usable(self, values: Sequence[float | None]) -> Ints:
        """The rows that have a label and a value."""
        both = zip(self.label, values, strict=True)
        found = [row for row, (label, value) in enumerate(both) if None not in (label, value)]
        return np.array(found, dtype=np.int64)

    def numbers(self, rows: Ints) -> Ints:
        """The problems of these rows, from 0."""
        return problem_numbers([self.problem[int(row)] for row in rows])

    def prior(self, rows: Ints) -> float:
        """How often these responses are right: by grades, or as far as agreement tells."""
        if self.voted is None:
            return float(np.mean([bool(self.label[row]) for row in rows]))
        found = self.voted.agreement(rows)
        if found.of_answered is None:
            raise DataError(
                f"How often responses are right cannot be estimated: {found.reason}.",
                next_step=MORE_SAMPLES,
            )
        return found.of_answered

    def notes(self, rows: Ints) -> tuple[str, ...]:
        """What to keep in mind of the labels, in sentences."""
        if self.voted is None:
            return ()
        found, share = self.voted.agreement(rows), np.mean([bool(self.label[r]) for r in rows])
        about = (
            f"No grade was used: {100 * share:.1f} % of the responses give the most frequent "
            "answer of their problem"
        )
        if found.of_answered is not None:
            about += f", and {100 * found.of_answered:.1f} % are right, as samples agree"
        notes = [f"{about}. Where the same wrong answer comes again and again, both say too much."]
        if found.problems and found.samples < FEWEST_SAMPLES * found.problems:
            notes.append(
                f"There are fewer than {FEWEST_SAMPLES} samples of most problems, so that "
                "agreement says too little: take 4 or more of each."
            )
        return tuple(notes)


def by_grades(truth: Sequence[bool | None], problem: Sequence[str]) -> Outcomes:
    return Outcomes(truth, truth, problem)


def by_agreement(
    truth: Sequence[bool | None], problem: Sequence[str], votes_of: Sequence[str], answer: Ints
) -> Outcomes:
    """`votes_of` [N] names the samples that vote together, and `answer` [N] numbers their answers.

    A response without an answer has no label. `truth` is only judged by. Where every problem has a
    single sample, none has a most frequent answer: that is an error.
    """
    voted = Voted(problem_numbers(votes_of), answer)
    if len(answer) and len(set(votes_of)) == len(answer):
        raise DataError(
            "Each problem has one sample only, so that no answer is the most frequent one, which "
            "would count as right.",
            next_step=MORE_SAMPLES,
        )
    labels = majority_labels(voted.problem, answer)
    label = [bool(mine) if given >= 0 else None for mine, given in zip(labels, answer, strict=True)]
    return Outcomes(label, truth, problem, voted)
