"""Cascades: figures worked out by hand, and against loops that defer one response after another."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.decide.cascade import ALL_ALIKE, ONLY_ALL, curve, oracle
from divtok.decide.cost import TokenCost
from divtok.decide.deferral import Answers, Choices, choices
from divtok.errors import DataError
from divtok.evaluate.resampling import t_interval

NAN = float("nan")
A, B = ("bench", "a"), ("bench", "b")


def answers(*rows):
    """(problem, right, tokens) of each response."""
    problem, right, tokens = zip(*rows, strict=True)
    return Answers(problem, np.array(right, dtype=bool), np.array(tokens, dtype=np.float64))


def costs(small=1.0, large=2.0):
    return TokenCost(small, 0.0, "parameters"), TokenCost(large, 0.0, "parameters")


# Problem a: one right and one wrong response, the larger is always right in 20 tokens on average.
# Problem b: one wrong response, the larger is right half of the time in 40 tokens.
SMALL = answers((A, True, 10), (A, False, 20), (B, False, 10))
LARGE = answers((A, True, 10), (A, True, 30), (B, True, 40), (B, False, 40))
BOTH = choices(SMALL, LARGE, costs(), resamples=20)
VALUES = np.array([0.9, 0.2, 0.5])


def test_each_alone_weighs_every_problem_alike() -> None:
    assert (BOTH.smaller.accuracy, BOTH.smaller.cost) == (0.25, 12.5)  # (.5 + 0) / 2, (15 + 10) / 2
    assert (BOTH.larger.accuracy, BOTH.larger.cost) == (0.75, 60.0)  # (1 + .5) / 2, (40 + 80) / 2


def test_the_curve_of_three_responses_by_hand() -> None:
    found = curve(BOTH, VALUES, read=1.0)
    assert found.threshold.tolist() == [0.2, 0.5, 0.9, math.inf]
    assert found.deferred.tolist() == [0, 0.25, 0.75, 1]
    assert found.accuracy.tolist() == [0.25, 0.5, 0.75, 0.75]
    assert found.read == 12.5  # as many tokens, each read for 1
    assert found.cost.tolist() == [25, 35, 75, 85]


def test_the_figures_of_three_responses_by_hand() -> None:
    found = curve(BOTH, VALUES, read=1.0)
    assert found.at_larger == 2
    assert found.cost_at_larger.value == 75 / 60
    # 30 of 60 are spent halfway between 10, which gain 1/4, and 50, which gain 1/2
    assert found.gain_at_half.value == pytest.approx(0.375 - 0.25)
    assert found.share_of_oracle.value == pytest.approx(1)  # the oracle defers in this order
    backwards = curve(BOTH, -VALUES, read=0.0)
    # Over shares of the cost of 1/6, 4/6, 1/6 nothing, 1/4 and 1/2 are gained at the ends.
    area = (0 + (0 + 0.25) / 2 * 4 + (0.25 + 0.5) / 2) / 6 - 0.25
    best = ((0 + 0.25) / 2 + (0.25 + 0.5) / 2 * 4 + 0.5) / 6 - 0.25
    assert backwards.share_of_oracle.value == pytest.approx(area / best)


def test_the_oracle_defers_what_gains_most_for_its_cost_and_stops_there() -> None:
    best = oracle(BOTH)
    # The wrong answer to a gains 1/4 for 10, that to b 1/4 for 40; the right one is kept.
    assert best.accuracy.tolist() == [0.25, 0.5, 0.75]
    assert best.cost.tolist() == [12.5, 22.5, 62.5]
    assert best.accuracy_at(np.array([0.0, 17.5, 1000.0])).tolist() == [0.25, 0.375, 0.75]


def test_where_a_little_less_will_do_fewer_are_deferred() -> None:
    found = curve(BOTH, VALUES, read=0.0, within=0.25)
    assert found.at_larger == 1
    assert found.cost_at_larger.value == 22.5 / 60
    assert curve(BOTH, VALUES, read=0.0, within=0.24).at_larger == 2


def test_what_has_no_confidence_is_deferred_at_every_threshold() -> None:
    found = curve(BOTH, np.array([0.9, NAN, 0.5]), read=0.0)
    assert found.threshold.tolist() == [0.5, 0.9, math.inf]
    assert found.deferred.tolist() == [0.25, 0.75, 1]
    assert found.cost.tolist() == [22.5, 62.5, 72.5]
    nothing = curve(BOTH, np.full(3, NAN), read=0.0)
    assert (nothing.threshold.tolist(), nothing.accuracy.tolist()) == ([math.inf], [0.75])
    assert nothing.cost_at_larger.reason == ONLY_ALL


def test_equal_confidences_are_deferred_together() -> None:
    found = curve(BOTH, np.array([0.5, 0.5, 0.9]), read=0.0)
    assert found.threshold.tolist() == [0.5, 0.9, math.inf]
    assert found.deferred.tolist() == [0, 0.5, 1]


def test_a_threshold_between_two_confidences_is_that_of_the_next() -> None:
    found = curve(BOTH, VALUES, read=0.0)
    assert [found.at(t) for t in (0.0, 0.2, 0.21, 0.9, 0.91, math.inf)] == [0, 0, 1, 2, 3, 3]


def test_the_larger_accuracy_may_take_deferring_everything() -> None:
    found = curve(BOTH, np.array([0.9, 0.2, 0.95]), read=0.0)
    assert found.cost_at_larger.value is None
    assert found.cost_at_larger.reason == ONLY_ALL


def test_where_all_responses_gain_alike_there_is_no_share_of_the_oracle() -> None:
    small, large = answers((A, False, 5), (B, False, 5)), answers((A, True, 5), (B, True, 5))
    both = choices(small, large, costs(), resamples=20)
    assert curve(both, np.array([0.1, 0.2]), read=0.0).share_of_oracle.reason == ALL_ALIKE


def test_an_interval_needs_enough_problems_and_says_so() -> None:
    interval = curve(BOTH, VALUES, read=0.0).gain_at_half.interval
    assert interval.interval is None
    assert interval.reason is not None
    assert interval.reason.startswith("2 problems")


def test_problems_of_one_side_alone_are_counted_and_left_out() -> None:
    small = answers((A, True, 10), (("bench", "c"), True, 10), (("other", "a"), False, 10))
    large = answers((A, True, 10), (B, False, 10))
    both = choices(small, large, costs(), resamples=20)
    assert (both.problems, both.only_smaller, both.only_larger) == (1, 2, 1)
    assert (both.rows.tolist(), both.benchmarks) == ([0], ("bench",))
    with pytest.raises(DataError, match="No problem was answered by both") as stopped:
        choices(answers((A, True, 1)), answers((B, True, 1)), costs(), resamples=20)
    assert stopped.value.next_step is not None


def test_what_cannot_be_added_up_is_refused() -> None:
    other = TokenCost(1.0, 0.0, "tokens")
    with pytest.raises(DataError, match="parameters and in tokens"):
        choices(SMALL, LARGE, (costs()[0], other), resamples=20)
    with pytest.raises(DataError, match="not known how many tokens"):
        choices(SMALL, answers((A, True, 0), (B, True, 5)), costs(), resamples=20)


@st.composite
def two_generators(draw):
    """Up to four problems of one to three samples each, values with ties and gaps."""
    names = [("x", "1"), ("x", "2"), ("y", "1"), ("y", "2")][: draw(st.integers(1, 4))]

    def side():
        rows = []
        for name in names:
            for _ in range(draw(st.integers(1, 2))):
                rows.append((name, draw(st.booleans()), draw(st.integers(1, 9))))
        return answers(*rows)

    small, large = side(), side()
    value = st.sampled_from([NAN, 0.1, 0.2, 0.5, 0.7, 0.9])
    values = [draw(value) for _ in small.problem]
    return small, large, np.array(values), draw(st.sampled_from([0.0, 0.5, 2.0]))


def deferring(small, large, kept, read):
    """Accuracy and cost where responses that are not kept are deferred, added up one by one."""
    accuracy = cost = 0.0
    names = set(small.problem)
    for row, name in enumerate(small.problem):
        weight = 1 / len(names) / small.problem.count(name)
        theirs = [i for i, other in enumerate(large.problem) if other == name]
        cost += weight * small.tokens[row] * (1 + read)
        if kept[row]:
            accuracy += weight * small.right[row]
        else:
            accuracy += weight * sum(large.right[i] for i in theirs) / len(theirs)
            cost += weight * 2 * sum(large.tokens[i] for i in theirs) / len(theirs)
    return accuracy, cost


@settings(max_examples=60, deadline=None)
@given(two_generators())
def test_every_point_is_what_deferring_one_by_one_gives(sides) -> None:
    small, large, values, read = sides
    both = choices(small, large, costs(), resamples=5)
    found = curve(both, values, read)
    there = sorted({float(v) for v in values if not math.isnan(v)})
    assert found.threshold.tolist() == [*there, math.inf]
    for place, threshold in enumerate(found.threshold):
        accuracy, cost = deferring(small, large, values >= threshold, read)
        assert found.accuracy[place] == pytest.approx(accuracy)
        assert found.cost[place] == pytest.approx(cost)
    # Everything deferred: the larger's accuracy, and the cost of both with reading.
    assert found.accuracy[-1] == pytest.approx(both.larger.accuracy)
    assert found.cost[-1] == pytest.approx(both.smaller.cost + found.read + both.larger.cost)
    if not np.isnan(values).any():
        assert found.accuracy[0] == pytest.approx(both.smaller.accuracy)
        assert found.cost[0] == pytest.approx(both.smaller.cost + found.read)


@settings(max_examples=40, deadline=None)
@given(two_generators())
def test_no_choice_of_responses_is_above_the_oracle(sides) -> None:
    small, large, _, _ = sides
    best = oracle(choices(small, large, costs(), resamples=5))
    for kept in product([True, False], repeat=len(small.problem)):
        accuracy, cost = deferring(small, large, kept, 0.0)
        assert accuracy <= float(best.accuracy_at(np.array([cost]))[0]) + 1e-9
    assert (np.diff(best.cost) > 0).all()


def many(problems: int, seed: int = 0) -> tuple[Choices, np.ndarray]:
    """Problems of four samples; a response that is right has a higher confidence, mostly."""
    rng = np.random.default_rng(seed)
    names = [("bench", str(i)) for i in range(problems) for _ in range(4)]
    hard = np.repeat(rng.random(problems), 4)
    right, theirs = rng.random(4 * problems) > hard, rng.random(4 * problems) > hard / 3
    tokens = rng.integers(5, 50, 4 * problems).astype(np.float64)
    both = choices(
        Answers(names, right, tokens), Answers(names, theirs, tokens), costs(), resamples=300
    )
    return both, right + rng.normal(0, 0.8, 4 * problems)


def test_intervals_hold_what_is_measured_and_shrink_with_more_problems() -> None:
    widths: dict[int, list[float]] = {}
    for problems in (100, 900):
        both, values = many(problems)
        found = curve(both, values, read=0.5)
        for figure in (found.gain_at_half, found.share_of_oracle):
            ends = figure.interval.interval
            assert ends is not None
            assert figure.value is not None
            assert ends.low < figure.value < ends.high
            widths.setdefault(problems, []).append(ends.high - ends.low)
    for few, more in zip(widths[100], widths[900], strict=True):
        assert 2 < few / more < 4.5  # a third, as of nine times the problems


def test_intervals_are_those_of_resampling_whole_problems_one_by_one() -> None:
    """Fifty problems of four samples: as many thresholds as a resampled curve keeps."""
    rng = np.random.default_rng(3)
    names = [("bench", str(i)) for i in range(50) for _ in range(4)]
    right, theirs = rng.random(200) < 0.4, rng.random(200) < 0.7
    tokens, more = rng.integers(5, 50, 200) * 1.0, rng.integers(5, 50, 200) * 1.0
    values = np.where(rng.random(200) < 0.1, NAN, right + rng.normal(0, 0.5, 200))
    both = choices(
        Answers(names, right, tokens), Answers(names, theirs, more), costs(), resamples=30
    )
    found = curve(both, values, read=3.0, within=0.02)
    again: dict[str, list[float]] = {}
    for times in both.resamples.times.astype(int):
        rows = [
            4 * number + sample
            for number in range(50)
            for _ in range(times[number])
            for sample in range(4)
        ]
        copies = [("bench", str(i // 4)) for i in range(200)]
        drawn = choices(
            Answers(copies, right[rows], tokens[rows]),
            Answers(copies, theirs[rows], more[rows]),
            costs(),
            resamples=5,
        )
        one = curve(drawn, values[rows], read=3.0, within=0.02)
        for name in ("gain_at_half", "share_of_oracle"):
            again.setdefault(name, []).append(getattr(one, name).value)
        cost = one.cost[one.at_larger] / drawn.larger.cost
        again.setdefault("cost_at_larger", []).append(cost)
    for name, resampled in again.items():
        figure = getattr(found, name)
        by_hand = t_interval(figure.value, np.array(resampled), 50)
        assert figure.interval.interval.low == pytest.approx(by_hand.low), name
        assert figure.interval.interval.high == pytest.approx(by_hand.high), name


def test_chance_is_worth_nothing_and_knowing_the_outcome_nearly_the_oracle() -> None:
    both, _ = many(300)
    rng = np.random.default_rng(1)
    blind = curve(both, rng.random(len(both.right)), read=0.0)
    ends = blind.share_of_oracle.interval.interval
    assert ends is not None
    assert ends.low < 0 < ends.high
    known = curve(both, -both.gain / both.larger_cost, read=0.0)
    assert known.share_of_oracle.value == pytest.approx(1)
    assert blind.gain_at_half.value is not None
    assert known.gain_at_half.value is not None
    assert known.gain_at_half.value > abs(blind.gain_at_half.value) + 0.05
