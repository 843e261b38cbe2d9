"""Ways of marking the first wrong step, by hand and against every order there is."""

from __future__ import annotations

from itertools import permutations
from statistics import fmean

import numpy as np
import pytest

from divtok.evaluate.mean_interval import mean_interval
from divtok.evaluate.mistakes import (
    CHANCE,
    FEWEST_OF_A_LENGTH,
    FIRST,
    LAST,
    Found,
    Mistake,
    earliness_of,
    found_by,
    found_by_chance,
    markings_of,
)

NONE = -np.inf


def mistake(first_wrong: int, *, problem: str = "a", after: int | None = None, **scores):
    arrays = {name: np.array(values, dtype=float) for name, values in scores.items()}
    left = None if after is None else after / 10
    return Mistake(problem, first_wrong, arrays, after, left)


@pytest.mark.parametrize(
    ("scores", "wrong", "found"),
    [
        ([1, 3, 2], 1, Found(1, 1, 1, 0, 0, 1)),
        ([1, 3, 2], 2, Found(1, 0, 1, 1, 0, 1 / 2)),
        ([1, 3, 2], 0, Found(1, 0, 1, 0, 1, 1 / 3)),
        ([0, 0, 0, 5], 0, Found(1, 0, 0, 0, 1, 1 / 2)),
        ([2, 2, 1], 1, Found(1, 0, 1, 1, 0, 1 / 2)),  # of equal ones the first
        ([NONE, NONE, NONE], 1, Found(0, 0, 0, 0, 0, 1 / 2)),
        ([NONE, 4, NONE], 2, Found(1, 0, 1, 1, 0, 1 / 3)),
        ([7], 0, Found(1, 1, 1, 0, 0, 1)),
    ],
)
def test_one_response(scores: list[float], wrong: int, found: Found) -> None:
    assert found_by(np.array(scores, dtype=float), wrong) == found


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_chance_is_the_mean_over_all_orders(steps: int) -> None:
    for wrong in range(steps):
        each = [found_by(np.array(o, dtype=float), wrong) for o in permutations(range(steps))]
        chance = found_by_chance(steps, wrong)
        for name in ("marked", "exact", "near", "before", "behind", "reciprocal"):
            expected = fmean(getattr(one, name) for one in each)
            assert getattr(chance, name) == pytest.approx(expected), name


GIVEN = [
    mistake(1, problem="a", est=[1, 3, 2, 0], other=[9, 0, 0, 0], after=2),
    mistake(0, problem="a", est=[1, 3, 2, 0], other=[9, 0, 0, 0], after=4),
    mistake(2, problem="b", est=[NONE] * 4, other=[0, 0, 9, 0]),
    mistake(3, problem="c", est=[0, 1, 2, 9], other=[0, 0, 9, 0], after=9),
]


def test_precision_is_of_the_marked_and_differences_are_of_the_same() -> None:
    found = {m.name: m for m in markings_of(GIVEN, (CHANCE, "other"))}
    assert list(found) == ["est", "other", CHANCE, FIRST, LAST]
    est = found["est"]
    assert (est.responses, est.marked) == (4, 3 / 4)
    assert est.precision is not None
    assert est.precision.value == pytest.approx(2 / 3)
    assert (est.near, est.before, est.behind) == (1, 0, pytest.approx(1 / 3))
    assert est.reciprocal == pytest.approx((1 + 1 / 3 + 1 / 3 + 1) / 4)
    assert est.over[CHANCE].value == pytest.approx(2 / 3 - 1 / 4)
    # Right where the other is not, the other way round, and the third response is not marked.
    assert est.over["other"].value == pytest.approx((1 - 1 + 1) / 3)
    paired = np.array([1.0, -1.0, 1.0])
    assert est.over["other"].interval == mean_interval(paired, np.array([0, 0, 2]))
    assert found["other"].precision is not None
    assert found["other"].precision.value == 2 / 4
    assert found["other"].over.keys() == {CHANCE}
    precisions = {n: found[n].precision for n in (CHANCE, FIRST, LAST)}
    assert {n: p and p.value for n, p in precisions.items()} == {
        **{CHANCE: 1 / 4, FIRST: 1 / 4, LAST: 1 / 4}
    }
    assert found[CHANCE].reciprocal == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_a_way_that_marks_nothing_has_no_precision() -> None:
    (nothing, *_) = markings_of([mistake(0, est=[NONE, NONE])], (CHANCE,))
    assert (nothing.marked, nothing.precision, nothing.near, nothing.over) == (0, None, None, {})
    assert nothing.reciprocal == 1


def test_a_way_is_judged_where_it_has_scores() -> None:
    given = [mistake(0, est=[1, 0], more=[0, 1]), mistake(1, est=[0, 1])]
    found = {m.name: m.responses for m in markings_of(given, (CHANCE,))}
    assert found == {"est": 2, "more": 1, CHANCE: 2, FIRST: 2, LAST: 2}


def test_by_the_number_of_steps_where_there_are_enough() -> None:
    given = [mistake(0, problem=str(i), est=[i % 2, 0.5]) for i in range(FEWEST_OF_A_LENGTH)]
    given += [mistake(0, problem="c", est=[3, 2, 1])] * (FEWEST_OF_A_LENGTH - 1)
    found = {m.name: m.by_steps for m in markings_of(given, (CHANCE,))}
    assert {n: {s: m.value for s, m in of.items()} for n, of in found.items()} == {
        "est": {2: 0.5},
        CHANCE: {2: 0.5},
        FIRST: {2: 1},
        LAST: {2: 0},
    }


def test_how_early_divergence_tells() -> None:
    found = earliness_of(GIVEN)
    assert (found.found, found.after, found.left) == (3 / 4, 4, 0.4)
    none = earliness_of([mistake(0, est=[1])])
    assert (none.found, none.after, none.left) == (0, None, None)
