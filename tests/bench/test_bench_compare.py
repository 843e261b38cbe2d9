"""The stored comparison is that of the kept data, and its figures those of the package."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bench.__main__ import read_results
from bench.benches import Case, cases
from bench.compare import compare
from bench.page import METRICS, PAGE, fill
from bench.scores import fitted_rate, groups_of, ways_of
from divtok.evaluate.metrics import ece
from divtok.evaluate.protocol import evaluate_group

ALL = cases()


@pytest.fixture(scope="module")
def one() -> Case:
    return next(case for case in ALL if case.name == "routes, two auxiliaries")


def test_figures_are_those_of_the_package(one: Case) -> None:
    ways = [way for way in ways_of(one) if way.name in ("nsl", "dtc_lin", "dtc_weighted", "length")]
    figures, about = compare(one, ways)
    groups = groups_of(one, ways)
    assert (about.groups, about.responses) == (2, sum(len(g.problem_id) for g in groups))
    known = [evaluate_group(group) for group in groups]
    for place, found in enumerate(figures):
        of = [evaluations[place] for evaluations in known]
        assert found.auroc == pytest.approx(np.mean([e.auroc for e in of if e.auroc is not None]))
        assert found.aurc == pytest.approx(np.mean([e.aurc for e in of if e.aurc is not None]))
        if found.way == "length":
            assert found.ece is None
            continue
        assert found.ece == pytest.approx(np.mean([e.ece for e in of if e.ece is not None]))
        assert found.natural_ece == pytest.approx(
            np.mean([e.natural_ece for e in of if e.natural_ece is not None])
        )
        assert found.brier == pytest.approx(np.mean([e.brier for e in of if e.brier is not None]))
        assert found.auroc_interval is not None
        assert found.auroc_interval.low < found.auroc < found.auroc_interval.high


def test_a_fitting_set_and_the_tables_share_no_problem() -> None:
    for case in ALL:
        fitting = {(r.benchmark, r.problem_id) for r in case.rows("fit")}
        assert fitting
        assert fitting.isdisjoint((r.benchmark, r.problem_id) for r in case.rows("test"))


def test_the_stored_figures_are_those_of_the_data(one: Case) -> None:
    """Of one case; `make bench` makes all of them anew."""
    stored_abouts, stored = read_results()
    assert [about.case for about in stored_abouts] == [case.name for case in ALL]
    figures, about = compare(one, ways_of(one))
    assert about == next(a for a in stored_abouts if a.case == one.name)
    of_case = [f for f in stored if f.case == one.name]
    assert [f.way for f in of_case] == [f.way for f in figures]
    for kept, found in zip(of_case, figures, strict=True):
        for value, _ in METRICS.values():
            assert value(kept) == pytest.approx(value(found), abs=1e-9)


def test_the_page_is_that_of_the_stored_figures() -> None:
    page = PAGE.read_text(encoding="utf-8")
    abouts, figures = read_results()
    assert fill(page, ALL, abouts, figures) == page


def test_the_fitted_rate_has_the_lowest_ece_of_balanced_draws() -> None:
    """Right with chance exp(-2 sum), as many right as wrong: the rate is near 2."""
    rng = np.random.default_rng(3)
    sums = rng.exponential(0.5, 6000)
    correct = rng.random(6000) < np.exp(-2 * sums)
    rate = fitted_rate(sums, correct)
    assert rate == pytest.approx(2, rel=0.15)
    assert ece(np.exp(-rate * sums), correct) < 0.03


def test_auroc_is_that_of_scikit_learn(one: Case) -> None:
    """Of all responses; balanced draws of all of the rarer class differ by little."""
    ways = [way for way in ways_of(one) if way.name == "nsl"]
    (figures,), _ = compare(one, ways)
    known: list[float] = []
    for group in groups_of(one, ways):
        kept, correct = group.graded(), group.correct()
        known.append(float(roc_auc_score(correct[kept], group.columns[0].array()[kept])))
    assert figures.auroc == pytest.approx(np.mean(known), abs=0.02)
