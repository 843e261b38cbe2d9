"""Figures over all groups at natural prevalence."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.evaluate.metrics import ece
from divtok.evaluate.overall import overall, prevalences
from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup

PROTOCOL = Protocol(resamples=200)


def group(values, verdicts, *, generator="g", benchmark="b", problems=None, truncated=None):
    n = len(values)
    return ScoredGroup(
        benchmark=benchmark,
        generator=generator,
        problem_id=problems or [str(i) for i in range(n)],
        verdict=verdicts,
        truncated=truncated or [False] * n,
        length=[10] * n,
        count=[None] * n,
        columns=[
            ScoreColumn("dtc_lin", values),
            ScoreColumn("length", [-10.0] * n, ranking_only=True),
        ],
    )


def random_group(seed, n=60, **where):
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.3, 1.0, n)
    right = rng.random(n) < values - 0.1
    verdicts = ["correct" if y else "incorrect" for y in right]
    return group(values.tolist(), verdicts, **where)


def test_one_group_has_the_figures_of_its_evaluation():
    rows = random_group(1)
    (found,) = overall([rows], PROTOCOL)
    (one, _) = evaluate_group(rows, PROTOCOL)
    assert (found.natural_ece, found.brier) == (one.natural_ece, one.brier)
    assert (found.mean_confidence, found.share_right) == (one.mean_confidence, one.share_right)
    assert found.natural_ece_interval == one.natural_ece_interval
    assert found.brier_interval is not None
    assert one.brier_interval is not None
    assert found.brier_interval.low == pytest.approx(one.brier_interval.low)
    assert found.brier_interval.high == pytest.approx(one.brier_interval.high)


def test_every_group_weighs_the_same():
    first = group([0.9, 0.9], ["correct", "incorrect"])
    second = group([0.2] * 4, ["incorrect"] * 4, benchmark="c")
    (found,) = overall([first, second], PROTOCOL)
    assert (found.groups, found.n) == (2, 6)
    assert found.mean_confidence == pytest.approx((0.9 + 0.2) / 2)
    assert found.share_right == pytest.approx((0.5 + 0.0) / 2)
    assert found.natural_ece == pytest.approx((0.4 + 0.2) / 2)
    assert found.brier == pytest.approx(((0.01 + 0.81) / 2 + 0.04) / 2)
    assert found.natural_ece_interval is None
    assert found.reason is not None
    assert "20" in found.reason


def test_groups_of_one_benchmark_share_their_problems():
    """A generator that answers as another does tells nothing new, a benchmark more does."""
    rows = random_group(2, n=200)
    (one,) = overall([rows], PROTOCOL)
    (copied,) = overall([rows, random_group(2, n=200, generator="h")], PROTOCOL)
    (other,) = overall([rows, random_group(2, n=200, benchmark="c")], PROTOCOL)

    def width(found):
        return found.brier_interval.high - found.brier_interval.low

    assert width(copied) == pytest.approx(width(one))
    assert width(other) == pytest.approx(width(one) / np.sqrt(2), rel=0.02)
    assert copied.natural_ece_interval.low == pytest.approx(one.natural_ece_interval.low, abs=1e-9)


def test_unusable_responses_are_left_out():
    rows = group(
        [0.9, 0.8, 0.7, None],
        ["correct", "unanswered", "incorrect", "correct"],
        truncated=[False, False, True, False],
    )
    (found,) = overall([rows], PROTOCOL)
    assert (found.n, found.mean_confidence, found.share_right) == (1, 0.9, 1.0)
    assert found.natural_ece == ece([0.9], [True])


def test_prevalence_is_over_all_benchmarks_of_a_generator():
    groups = [
        group([0.9, 0.5], ["correct", "incorrect"]),
        group([0.1, 0.1], ["correct", "correct"], benchmark="c"),
        group([0.4], ["incorrect"], generator="h"),
    ]
    first, second = prevalences(groups)
    assert (first.generator, first.n, first.accuracy) == ("g", 4, 0.75)
    assert first.says == {"dtc_lin": pytest.approx(0.4)}
    assert first.interval is not None
    assert first.interval.low < 0.75 < first.interval.high
    assert (second.generator, second.accuracy) == ("h", 0.0)


@pytest.mark.parametrize(
    ("verdicts", "truncated", "accuracy"),
    [
        (["unanswered"] * 3 + ["correct"], [False] * 4, None),
        (["unanswered"] * 2 + ["correct"] * 2, [False] * 4, 0.5),
        # Cut off before its answer: that is the generator's doing.
        (["unanswered"] * 3 + ["correct"], [True, True, False, False], 0.25),
    ],
)
def test_no_accuracy_where_most_answers_were_not_found(verdicts, truncated, accuracy):
    rows = group([0.5] * 4, verdicts, truncated=truncated)
    found = evaluate_group(rows, PROTOCOL)
    assert [one.accuracy for one in found] == [accuracy, accuracy]
    (whole,) = prevalences([rows])
    assert whole.accuracy == accuracy
    if accuracy is None:
        assert "no answer was found in 3 of 4 responses" in (found[0].reason or "")
