"""Natural ECE before and after confidences are stated for the base rate that agreement suggests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from divtok.evaluate.base_rate import base_rates, mean_restated
from divtok.evaluate.metrics import ece
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.evaluate.votes import TOO_FEW_SAMPLES
from divtok.records import Verdict
from divtok.score.prior import NOT_REACHED, shifted


def group(
    right: Sequence[bool], values: Sequence[float | None], *, samples: int = 4, **changes: object
) -> ScoredGroup:
    """Problems of so many samples each; a wrong answer is like no other."""
    n = len(right)
    plain = ScoredGroup(
        benchmark="bench",
        generator="gen",
        problem_id=[str(i // samples) for i in range(n)],
        verdict=[Verdict.CORRECT if y else Verdict.INCORRECT for y in right],
        truncated=[False] * n,
        length=[10] * n,
        count=[1] * n,
        columns=[
            ScoreColumn("est", values),
            ScoreColumn("length", [-10.0] * n, ranking_only=True),
        ],
        answer=[0 if y else 1 + i for i, y in enumerate(right)],
    )
    return replace(plain, **changes)  # pyright: ignore[reportArgumentType]


def test_confidences_that_were_shifted_are_calibrated_again() -> None:
    """Problems right always or never, whose truth is known: 80 % are right, and a calibrated
    confidence was moved to a base rate of a half.
    """
    truth = np.repeat([0.95, 0.75, 0.70], 400)
    right = np.concatenate([np.arange(400) < 400 * share for share in (0.95, 0.75, 0.70)])
    said = shifted(truth, -np.log(4))
    (found,) = base_rates([group(right.tolist(), said.tolist())])
    assert found.agreement.value == pytest.approx(0.8)
    assert found.accuracy == found.share_right == pytest.approx(0.8)
    (one,) = found.restated  # what only ranks has no ECE
    assert one.as_is == pytest.approx(ece(said, right))
    assert one.as_is > 0.2
    assert one.shift == pytest.approx(np.log(4), abs=1e-9)
    assert one.after == pytest.approx(0, abs=1e-9)


def test_a_single_sample_is_a_reason_and_the_ece_as_it_is_stays() -> None:
    (found,) = base_rates([group([True, False], [0.9, 0.4], samples=1)])
    (one,) = found.restated
    assert found.agreement.value is None
    assert (one.after, one.shift) == (None, None)
    assert one.reason is not None
    assert one.reason.kind == TOO_FEW_SAMPLES
    assert one.as_is == pytest.approx(0.25)


def test_where_every_pair_agrees_no_shift_gives_that_mean() -> None:
    (found,) = base_rates([group([True] * 4, [0.9, 0.8, 0.7, 0.6])])
    assert found.agreement.value == 1.0
    (one,) = found.restated
    assert one.reason is not None
    assert one.reason.kind == NOT_REACHED
    assert mean_restated([found]) == []


def test_responses_without_an_answer_are_not_what_confidences_are_about() -> None:
    """Half of the samples were cut off: of all 8 a share of 0.5 x 0.5 is right, of 4 a half."""
    right = [True, True, False, False] * 2
    there, gone = ["correct", "correct"], ["unanswered", "unanswered"]
    values = [0.9, 0.8, 0.1, None, 0.4, 0.3, 0.1, 0.1]
    rows = group(
        right,
        values,
        truncated=[False, False, True, True] * 2,
        answer=[0, 0, -1, -1, 1, 2, -1, -1],
        verdict=[*there, *gone, "incorrect", "incorrect", *gone],
    )
    (found,) = base_rates([rows])
    estimate = np.sqrt(1 / 6) / 2
    assert found.agreement.value == pytest.approx(estimate)
    assert found.agreement.of_answered == pytest.approx(2 * estimate)
    assert (found.accuracy, found.share_right) == (0.25, 0.5)
    (one,) = found.restated
    assert one.n == 4
    assert one.shift is not None
    assert shifted([0.9, 0.8, 0.4, 0.3], one.shift).mean() == pytest.approx(2 * estimate)


def test_means_are_over_the_groups_that_could_be_restated() -> None:
    first = group([True, True, False, False], [0.9, 0.8, 0.2, 0.3])
    second = replace(first, benchmark="other", answer=[0, 0, 0, 1])
    third = replace(first, benchmark="third", answer=[0] * 4)  # all agree
    found = base_rates([first, second, third])
    (mean,) = mean_restated(found)
    assert (mean.estimator, mean.groups) == ("est", 2)
    after = [one.after for rate in found for one in rate.restated]
    assert after[0] is not None
    assert after[1] is not None
    assert mean.after == pytest.approx((after[0] + after[1]) / 2)


def test_without_compared_answers_there_is_nothing_to_say() -> None:
    assert base_rates([group([True, False], [0.5, 0.5], answer=None)]) == []
