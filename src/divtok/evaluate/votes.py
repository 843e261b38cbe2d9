"""What the samples of a problem say of each other: how often a generator is right, without labels.

Two samples that are both right give the same answer, and two wrong ones now and then. How often
these do is seen in the answers that are not the most frequent of their problem; what is left of the
agreement is the square of how often a problem is answered right. Where the most frequent answer is
itself a mistake, this says too much. Knows numbers of answers only: no text, no grade.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.mean_interval import mean_interval
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.records import Interval, Reason

NO_ANSWER = -1  # the number of a response without an answer
# Of two samples of a problem either both agree or none do, and nothing is seen of how wrong ones
# agree: then the estimate was 10 to 13 points too low, with three it was 2.
FEWEST_SAMPLES = 3
TOO_FEW_SAMPLES = "too_few_samples"  # a kind of reason
_ROUNDING = 1e-12  # of a root that is 0


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a generator is right, estimated from how often its samples agree.

    `value` is a share of all `samples`, those without an answer among them, which are not right;
    None always comes with a reason. The interval is the 95 % one of the mean over problems, cut to
    [0, 1]: it says how much the agreement would differ with other problems, not how much wrong
    answers agree. None where there is one problem only.

    `wrong_agree` is the share of agreeing pairs among the samples beside the most frequent answer
    of their problem, 0 where there is no such pair. `answered` are the samples with an answer.
    `left_out` counts the problems of a single sample, which are in no other number here.
    """

    value: float | None
    interval: Interval | None
    problems: int
    samples: int
    answered: int
    left_out: int = 0
    reason: Reason | None = None
    wrong_agree: float = 0.0

    @property
    def of_answered(self) -> float | None:
        """The share right among the samples with an answer; at most 1.

        That is what confidences should be on average: a response without an answer is not scored.
        """
        if self.value is None or self.answered == 0:
            return None
        return min(1.0, self.value * self.samples / self.answered)


def agreement(problem: npt.ArrayLike, answer: npt.ArrayLike) -> Agreement:
    """The mean over problems of the share right that explains how often their samples agree.

    With a share of w right, a pair of samples agrees with chance w^2 + c (1 - w)^2: both are right,
    or both wrong and, with chance c, alike. c is seen in the samples beside the most frequent
    answers, over all problems together; the larger w that solves it is taken, and 0 where samples
    agree less than any w would have them.

    `problem` and `answer` are numbers of shape [N]; equal numbers mean the same answer within a
    problem and nothing across problems, and a negative one that there is none. Such a response is
    in pairs, but never agrees.
    """
    problems, answers = _numbers(problem, answer)
    which, size, cell, count = _counted(problems, answers)
    several = size >= 2
    left_out = int((~several).sum())
    kept = several[which]
    seen = (int(several.sum()), int(kept.sum()), int((answers[kept] >= 0).sum()), left_out)
    if not several.any():
        text = "fewer than 2 samples of every problem" if len(size) else "no response"
        return Agreement(None, None, *seen, Reason(TOO_FEW_SAMPLES, text))
    pairs_alike: Floats = (count * (count - 1)).astype(np.float64)
    agreeing = np.bincount(cell, weights=pairs_alike, minlength=len(size)).astype(np.float64)
    pairs = (size * (size - 1))[several]
    alike = _wrong_agree(size, cell, count, agreeing)
    shares = _shares_right(agreeing[several] / pairs, alike)
    interval = mean_interval(shares, np.arange(len(shares)))
    if interval is not None:
        interval = Interval(max(0.0, interval.low), min(1.0, interval.high))
    return Agreement(float(shares.mean()), interval, *seen, wrong_agree=alike)


def _wrong_agree(size: Ints, cell: Ints, count: Ints, agreeing: Floats) -> float:
    """Of the pairs of samples beside the most frequent answer of their problem, those that agree.

    `size` and `agreeing` are [P]; `cell` and `count` [C], of each different answer of a problem.
    """
    most = _most(size, cell, count)
    beside = size - most
    pairs = float((beside * (beside - 1)).sum())
    return float((agreeing - most * (most - 1)).sum()) / pairs if pairs else 0.0


def _shares_right(agreeing: Floats, alike: float) -> Floats:
    """[P] the larger w with w^2 + alike (1 - w)^2 = agreeing, and 0 where there is none."""
    root = alike**2 - (1 + alike) * (alike - agreeing)
    found = (alike + np.sqrt(np.maximum(root, 0.0))) / (1 + alike)
    return np.where(root >= -_ROUNDING, found, 0.0)


def majority_labels(problem: npt.ArrayLike, answer: npt.ArrayLike) -> Bools:
    """[N] True where a response gives the most frequent answer of its problem.

    False for all responses of a problem where two answers are given most often, and where no answer
    is given twice: a tie says nothing of which one is right. A response without an answer (a
    negative number) never counts.
    """
    problems, answers = _numbers(problem, answer)
    which, size, cell, count = _counted(problems, answers)
    top = count == _most(size, cell, count)[cell]
    alone = np.bincount(cell[top], minlength=len(size)) == 1
    chosen = top & alone[cell] & (count >= 2)
    labels = np.zeros(len(answers), dtype=bool)
    answered = answers >= 0
    labels[answered] = chosen[_cell_of(which, answers)[1]]
    return labels


def _numbers(problem: npt.ArrayLike, answer: npt.ArrayLike) -> tuple[Ints, Ints]:
    problems, answers = np.asarray(problem), np.asarray(answer)
    if problems.ndim != 1 or problems.shape != answers.shape:
        raise DataError(
            f"There are problem numbers of shape {problems.shape} and answer numbers of shape "
            f"{answers.shape}.",
            next_step="Give one of each for every response.",
        )
    return problems.astype(np.int64), answers.astype(np.int64)


def _counted(problems: Ints, answers: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """[N] the place of each response's problem and [P] the samples of it; of each different answer
    of a problem, [C] the place of the problem, and how often it is given.
    """
    _, which, size = np.unique(problems, return_inverse=True, return_counts=True)
    cells, cell = _cell_of(which, answers)
    return which, size, cells, np.bincount(cell, minlength=len(cells))


def _most(size: Ints, cell: Ints, count: Ints) -> Ints:
    """[P] how often the most frequent answer of each problem is given; 0 where there is none."""
    most: Ints = np.zeros(len(size), dtype=np.int64)
    np.maximum.at(most, cell, count)
    return most


def _cell_of(which: Ints, answers: Ints) -> tuple[Ints, Ints]:
    """[C] the problem of each different answer, and [A] which of those each answer is."""
    answered = answers >= 0
    pairs = np.stack([which[answered], answers[answered]], axis=1)
    cells, cell = np.unique(pairs, axis=0, return_inverse=True)
    return cells[:, 0], cell.reshape(-1)
