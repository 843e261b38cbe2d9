"""Claims about accuracy by count and length, on responses made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from divtok.evaluate.sweep.counts import Counted
from divtok.paper.claims import counts
from divtok.paper.trends import ENOUGH, Trend

# Accuracy over levels


def trend(accuracy: Sequence[float], n: int = 400, name: str = "pair") -> Trend:
    """Each level has n responses, each of a problem of its own."""
    which = np.repeat(np.arange(len(accuracy)), n)
    correct = np.concatenate([np.arange(n) < round(a * n) for a in accuracy] or [[]]).astype(bool)
    ids = [str(i) for i in range(len(which))]
    return Trend.of(name, [float(i) for i in range(len(accuracy))], which, correct, ids)


def test_correlation_is_pearsons() -> None:
    # Levels 0, 1, 2 and accuracies 0.9, 0.8, 0.4: r = -0.5 / sqrt(2 * 0.14).
    assert trend([0.9, 0.8, 0.4]).compared().difference == pytest.approx(-0.25 / np.sqrt(0.07))
    assert trend([0.5, 0.5, 0.5]).compared().difference == 0.0


def test_levels_with_too_few_responses_do_not_count() -> None:
    which = np.array([0] * ENOUGH + [1] * (ENOUGH - 1) + [2] * ENOUGH + [3] * ENOUGH)
    correct = np.array([i % 10 < {0: 9, 1: 0, 2: 7, 3: 6}[w] for i, w in enumerate(which)])
    ids = [str(i) for i in range(len(which))]
    kept = np.flatnonzero(which != 1)
    found, without = (
        Trend.of("pair", [0.0, 1.0, 2.0, 3.0], which[rows], correct[rows], [ids[i] for i in rows])
        for rows in (np.arange(len(which)), kept)
    )
    assert found.compared() == without.compared()
    few = Trend.of("pair", [0.0, 1.0], which[:19], correct[:19], ids[:19])
    assert few.correlation is None
    assert "fewer than 3 levels" in str(few.compared().reason)


def test_a_trend_has_the_levels_that_occur() -> None:
    which = np.array([0, 0, 2, 2, 2, 11])
    correct = np.array([True, True, True, False, False, False])
    found = Trend.of("pair", [float(i) for i in range(12)], which, correct, list("abcdef"))
    assert found.levels == (0.0, 2.0, 11.0)
    assert found.accuracy == pytest.approx((1.0, 1 / 3, 0.0))
    assert found.n == (2, 3, 1)


def test_a_resampled_correlation_is_that_of_the_responses_drawn() -> None:
    rng = np.random.default_rng(3)
    which = rng.integers(0, 4, 400)
    correct = rng.random(400) < 0.9 - 0.2 * which
    ids = [str(i // 4) for i in range(400)]
    figure = Trend.of("pair", [0.0, 1.0, 2.0, 3.0], which, correct, ids).correlation
    assert figure is not None
    problem = figure.resamples.places("", ids)
    for number in range(5):
        rows = np.repeat(np.arange(400), figure.resamples.times[number][problem].astype(int))
        accuracy = [correct[rows][which[rows] == level].mean() for level in range(4)]
        expected = np.corrcoef(np.arange(4), accuracy)[0, 1]
        assert np.tanh(figure.resampled[number]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("trends", "holds"),
    [
        ([trend([0.9, 0.6, 0.3])], True),
        ([trend([0.9, 0.2, 0.4])], False),
        ([trend([0.9, 0.6, 0.3]), trend([0.3, 0.6, 0.9], name="rising")], False),
        ([trend([0.9, 0.6, 0.3]), trend([0.9, 0.1], name="b")], None),
        ([trend([0.9, 0.1])], None),
        # Falling, with too few responses to tell how straight.
        ([trend([0.9, 0.6, 0.3], n=12)], None),
        ([], None),
    ],
)
def test_accuracy_falls_with_the_count(trends: list[Trend], holds: bool | None) -> None:
    found = counts.falls_with(counts.FALLS[False], trends, "count")
    assert found.holds is holds
    assert "-0.9" in found.rule
    assert len(found.compared) == len(trends)


# The count at equal length


def counted(count: Any, length: Any, correct: Any, benchmark: str = "bench") -> Counted:
    n = len(count)
    return Counted(
        benchmark=benchmark,
        generator="gen",
        p="gen",
        q="aux",
        problem_id=tuple(f"p{i}" for i in range(n)),
        correct=np.array(correct, dtype=bool),
        length=np.array(length, dtype=np.int64),
        reasoning=np.array(length, dtype=np.int64),
        mean_prob=np.full(n, 0.9),
        weighted=np.zeros(n),
        thetas={"jsd": np.array([0.5])},
        counts={"jsd": np.array(count, dtype=np.int32)[:, None]},
        excluded=0,
    )


def test_a_count_that_tells_right_from_wrong_at_equal_length() -> None:
    correct = [True, False] * 20
    found = counts.not_only_length([(counted([0, 5] * 20, [9] * 40, correct), 0.5)])
    assert found.holds is True
    assert found.number == (
        "100.0 (95 % interval 100.0 to 100.0) within bins of equal length, "
        "where length itself has 50.0; "
        "count less length +50.0 points (95 % interval +50.0 to +50.0)"
    )


def test_a_count_that_is_no_better_than_chance_at_equal_length() -> None:
    rng = np.random.default_rng(0)
    rows = counted(rng.poisson(3, 80), [9] * 80, [True, False] * 40)
    found = counts.not_only_length([(rows, 0.5)])
    assert found.verdict == "undecided"
    worse = counted([5, 0] * 40, [9] * 80, [True, False] * 40)
    assert counts.not_only_length([(worse, 0.5)]).holds is False


def test_without_both_kinds_at_equal_length_nothing_is_known() -> None:
    found = counts.not_only_length([(counted([0, 5], [9, 9], [True, True]), 0.5)])
    assert found.holds is None
    assert "no bin" in found.number
    assert counts.not_only_length([]).holds is None


def test_a_count_that_is_length_is_only_length() -> None:
    rng = np.random.default_rng(0)
    length = rng.integers(50, 500, 600)
    correct = rng.random(600) < 1 / (1 + np.exp((length - 275) / 40))
    found = counts.not_only_length([(counted(length // 2, length, correct), 0.5)])
    assert found.holds is not True


def test_one_problem_decides_nothing() -> None:
    rows = counted([0, 5] * 5, [9] * 10, [True, False] * 5)
    one = replace(rows, problem_id=("p",) * 10)
    assert counts.not_only_length([(one, 0.5)]).holds is None


def test_a_group_without_usable_responses_adds_nothing() -> None:
    empty = counted([], [], [])
    full = counted([0, 5] * 20, [9] * 40, [True, False] * 20)
    alone, both = (
        counts.not_only_length(rows) for rows in ([(full, 0.5)], [(full, 0.5), (empty, 0.5)])
    )
    assert both == alone


# Length, and the paper's own numbers


def responses(per_problem: int = 4, problems: int = 40) -> tuple[Any, list[str]]:
    n = per_problem * problems
    return np.arange(n), [str(i // per_problem) for i in range(n)]


def test_longer_responses_are_worse() -> None:
    rows, ids = responses()
    correct = rows % 2 == 0
    longer_wrong = np.where(correct, 100, 200) + rows
    assert counts.longer_is_worse(np.where(correct, 1, 2), correct, ids).holds is True
    found = counts.longer_is_worse(np.where(correct, 1, 2), correct, ids)
    assert found.compared[0].difference == 1.0
    assert counts.longer_is_worse(-longer_wrong, correct, ids).holds is False
    assert (
        counts.longer_is_worse(np.random.default_rng(0).permutation(rows), correct, ids).holds
        is None
    )
    assert counts.longer_is_worse(rows, np.ones(160, dtype=bool), ids).holds is None


def grown(count: Any, reasoning: Any) -> counts.Grown:
    rows, ids = responses()
    return counts.Grown("pair", np.asarray(count), np.asarray(reasoning), rows % 2 == 0, ids)


def test_a_count_that_grows_with_length() -> None:
    rng = np.random.default_rng(0)
    length = rng.integers(50, 500, 160)
    up, noise = length // 50 + rng.integers(0, 2, 160), rng.permutation(length)
    found = counts.grows_with_length([grown(up, length)])
    assert found.holds is True
    assert found.compared[0].difference == pytest.approx(np.corrcoef(up, length)[0, 1])
    assert counts.grows_with_length([grown(-up, length)]).holds is False
    assert counts.grows_with_length([grown(noise, length)]).holds is None
    assert counts.grows_with_length([grown(np.zeros(160), length)]).holds is None
    assert counts.grows_with_length([]).number == "no pair has a theta"


def test_a_resampled_correlation_of_count_and_length_is_that_of_the_responses_drawn() -> None:
    rng = np.random.default_rng(1)
    length = rng.integers(50, 500, 160)
    count = length // 100 + rng.integers(0, 5, 160)
    one = grown(count, length).correlation()
    ids = np.array([int(i) for i in responses()[1]])
    drawn: list[float] = []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(ids == p) for p in rng.integers(0, 40, 40)])
        drawn.append(float(np.corrcoef(count[rows], length[rows])[0, 1]))
    assert one.low is not None
    assert one.high is not None
    assert (one.high - one.low) / 2 == pytest.approx(2.02 * np.std(drawn), rel=0.25)


def test_the_papers_accuracies_at_both_ends() -> None:
    facts = ("count-zero", "count-many")
    as_told = trend([0.98, 0.6, 0.27], n=4000)
    assert [end.value for end in as_told.ends] == pytest.approx([0.98, 0.27])
    assert counts.at_ends(counts.AT_COUNTS, [as_told], facts, None).holds is True
    other = counts.at_ends(counts.AT_COUNTS, [trend([0.98, 0.6, 0.4], n=4000)], facts, None)
    assert other.holds is False
    few = counts.at_ends(counts.AT_COUNTS, [trend([0.98, 0.6, 0.27], n=100)], facts, None)
    assert few.holds is None
    elsewhere = counts.at_ends(counts.AT_COUNTS, [as_told], facts, "other models")
    assert (elsewhere.holds, elsewhere.number) == (None, "other models")


def test_the_papers_correlations() -> None:
    # Levels 0 to 3: sums of products -1.2 and -0.76, of squares 5 and 0.295 or 0.1333.
    count = trend([0.95, 0.6, 0.45, 0.2], n=20000, name="a")
    assert count.compared().difference == pytest.approx(-1.2 / np.sqrt(5 * 0.295))
    ratio = trend([0.9, 0.57, 0.55, 0.4], n=20000, name="b")
    assert ratio.compared().difference == pytest.approx(-0.76 / np.sqrt(5 * 0.1333))
    found = counts.correlations([count], [ratio], None)
    assert found.holds is True
    assert [one.name for one in found.compared] == ["a: r (count)", "b: r (ratio)"]
    assert counts.correlations([ratio], [ratio], None).holds is False
    assert counts.correlations([], [], "other models").number == "other models"


def test_an_end_without_responses_is_undecided() -> None:
    which = np.array([1] * 40 + [2] * 40)
    correct = np.arange(80) % 2 == 0
    found = Trend.of("pair", [0.0, 1.0, 2.0], which, correct, [str(i) for i in range(80)])
    finding = counts.at_ends(counts.AT_COUNTS, [found], ("count-zero", "count-many"), None)
    assert finding.compared[0].holds is None
    assert finding.compared[0].reason == "0 problems, and an interval needs 20"
