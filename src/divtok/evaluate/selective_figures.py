"""Figures of selective prediction, for one group and as means over groups, with 95 % intervals.

Beside the estimators are what no ranking can do better than, and what none at all would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from divtok.evaluate import metrics
from divtok.evaluate.ece_interval import Rows
from divtok.evaluate.group_rows import by_benchmark, influences
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.evaluate.selective import (
    COVERAGES,
    aurc_influence,
    coverage_at_risk,
    perfect_score,
)
from divtok.evaluate.selective_interval import area_interval, coverage_interval
from divtok.records import Interval

ORACLE, NO_RANKING = "Oracle", "No ranking"


@dataclass(frozen=True, slots=True)
class Selective:
    """AURC, and the coverage at each risk of `COVERAGES`, at natural prevalence.

    An interval is None where there is one problem; that of AURC also where all answers are right
    or all are wrong.
    """

    aurc: float
    aurc_interval: Interval | None
    coverage_at_1: float
    coverage_at_1_interval: Interval | None
    coverage_at_5: float
    coverage_at_5_interval: Interval | None
    coverage_at_10: float
    coverage_at_10_interval: Interval | None


@dataclass(frozen=True, slots=True)
class MeanSelective:
    """One estimator over all groups in which it has values; every group weighs the same."""

    estimator: str
    groups: int
    n: int
    figures: Selective


def selective_figures(score: Floats, correct: Bools, problem: Ints) -> Selective:
    """The figures of one group; all arrays are [N], `problem` has numbers of problems."""
    return _mean([[(score, correct, problem)]])


def mean_selective(groups: Sequence[ScoredGroup]) -> list[MeanSelective]:
    """Every estimator and fact, in the order of the groups' columns."""
    names = dict.fromkeys(column.estimator for group in groups for column in group.columns)
    found: list[MeanSelective] = []
    for name in names:
        if benchmarks := by_benchmark(groups, name):
            sizes = [len(score) for of in benchmarks for score, _, _ in of]
            found.append(MeanSelective(name, len(sizes), sum(sizes), _mean(benchmarks)))
    return found


def references(groups: Sequence[ScoredGroup]) -> list[MeanSelective]:
    """What ranks every right answer first, and what does not rank, over all graded responses."""

    def scored(group: ScoredGroup) -> ScoredGroup:
        correct = group.correct()
        columns = [
            ScoreColumn(ORACLE, perfect_score(correct).tolist()),
            ScoreColumn(NO_RANKING, [0.0] * len(correct)),
        ]
        return replace(group, columns=columns)

    return mean_selective([scored(group) for group in groups])


_Coverage = tuple[float, Interval | None]


def _mean(benchmarks: Sequence[Sequence[Rows]]) -> Selective:
    rows = [one for of in benchmarks for one in of]
    aurc = fmean(metrics.aurc(score, correct) for score, correct, _ in rows)
    moved = [aurc_influence(score, correct) for score, correct, _ in rows]
    at_1, at_5, at_10 = (
        _mean_coverage([_coverage(*one, risk) for one in rows]) for risk in COVERAGES.values()
    )
    interval = area_interval(aurc, influences(benchmarks, moved))
    return Selective(aurc, interval, *at_1, *at_5, *at_10)


def _coverage(score: Floats, correct: Bools, problem: Ints, risk: float) -> _Coverage:
    coverage = coverage_at_risk(score, correct, risk)
    return coverage, coverage_interval(score, correct, problem, risk, coverage)


def _mean_coverage(groups: Sequence[_Coverage]) -> _Coverage:
    """The mean over groups of a coverage, between the means of both ends of their intervals.

    That is wide, since chances even out over groups. But a few confident answers that happen to be
    right make small coverages too large in all of them, and that does not.
    """
    intervals = [interval for _, interval in groups if interval is not None]
    mean = fmean(value for value, _ in groups)
    if len(intervals) < len(groups):
        return mean, None
    ends = [fmean(getattr(interval, end) for interval in intervals) for end in ("low", "high")]
    return mean, Interval(*ends)
