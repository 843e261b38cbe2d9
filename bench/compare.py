"""The figures of every way to score, for every case: ranking, calibration, and changed copies.

Intervals are by problem: whole problems are resampled, in all groups of a case together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.benches import Case
from bench.packed import Row
from bench.scores import Way, groups_of
from divtok.evaluate import metrics
from divtok.evaluate.equal_length import what_count_adds
from divtok.evaluate.metrics import Bools, Floats
from divtok.evaluate.paired import Figure, Resamples, mean_of
from divtok.evaluate.protocol import Protocol, balanced_figures
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions
from divtok.evaluate.votes import agreement
from divtok.records import Interval, Scalar
from divtok.score.prior import shift_to_mean, shifted

PROTOCOL = Protocol()


@dataclass(frozen=True, slots=True)
class Figures:
    """One way on one case: means over its groups, as fractions; None where there is no scale."""

    case: str
    way: str
    params: Mapping[str, Scalar]
    tried: bool
    auroc: float
    auroc_interval: Interval | None
    equal_length: float
    ece: float | None
    ece_interval: Interval | None
    natural_ece: float | None
    shifted_ece: float | None
    brier: float | None
    aurc: float
    found: float | None = None  # the share of changed copies that score below their original


@dataclass(frozen=True, slots=True)
class About:
    """What a case is: its size, how often its generators are right, and as estimated.

    `accuracy` and `estimated` are shares of the `scored` responses.
    """

    case: str
    groups: int
    problems: int
    responses: int
    cut_off: int
    scored: int
    tokens: float  # mean of a response
    accuracy: float
    estimated: float
    floor: float  # balanced ECE that a perfect estimator would show, about


@dataclass(frozen=True, slots=True, eq=False)
class _Used:
    """The responses of a group that figures rest on, [N] each."""

    group: ScoredGroup
    kept: Bools
    correct: Bools
    problem_id: list[str]
    accuracy: float  # estimated from agreement, of those that are used


def compare(case: Case, ways: Sequence[Way]) -> tuple[list[Figures], About]:
    groups = groups_of(case, ways)
    rows = case.rows("test")
    used = [_used(group, [r for r in rows if _is_in(r, group)]) for group in groups]
    resamples = Resamples([(u.group.benchmark, u.problem_id) for u in used])
    found = {way.name: _found(case, way) for way in ways}
    figures = [
        replace(_figures(case, way, place, used, resamples), found=found[way.name])
        for place, way in enumerate(ways)
    ]
    return figures, _about(case, rows, used)


def _is_in(row: Row, group: ScoredGroup) -> bool:
    return (row.generator, row.benchmark) == (group.generator, group.benchmark)


def _used(group: ScoredGroup, rows: Sequence[Row]) -> _Used:
    kept, _ = exclusions(group.verdict, group.truncated, np.zeros(len(rows)))
    agreed = agreement(problem_numbers(group.problem_id), [row.answer for row in rows])
    if agreed.of_answered is None:
        raise ValueError(f"{group.benchmark}: {agreed.reason}")
    problems = [p for p, keep in zip(group.problem_id, kept, strict=True) if keep]
    return _Used(group, kept, group.correct()[kept], problems, agreed.of_answered)


def _figures(
    case: Case, way: Way, place: int, used: Sequence[_Used], resamples: Resamples
) -> Figures:
    each = [_one(u, u.group.columns[place], resamples) for u in used]
    auroc = mean_of([one.auroc for one in each])
    scaled = [one for one in each if one.ece is not None]
    shifts = [one.shifted_ece for one in scaled]
    ece = mean_of([one.ece for one in scaled if one.ece is not None]) if scaled else None
    return Figures(
        case=case.name,
        way=way.name,
        params=way.params,
        tried=way.tried,
        auroc=auroc.value,
        auroc_interval=auroc.interval().interval,
        equal_length=_mean([one.equal_length for one in each]),
        ece=None if ece is None else ece.value,
        ece_interval=None if ece is None else ece.interval().interval,
        natural_ece=_mean([one.natural_ece for one in scaled]) if scaled else None,
        shifted_ece=_mean(shifts) if scaled and np.isfinite(shifts).all() else None,
        brier=_mean([one.brier for one in scaled]) if scaled else None,
        aurc=_mean([one.aurc for one in each]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _One:
    """One way on one group."""

    auroc: Figure
    equal_length: float
    aurc: float
    ece: Figure | None
    natural_ece: float
    shifted_ece: float
    brier: float


def _one(used: _Used, column: ScoreColumn, resamples: Resamples) -> _One:
    scores, correct = column.array()[used.kept], used.correct
    length = np.array(used.group.length)[used.kept]
    places = resamples.places(used.group.benchmark, used.problem_id)
    probability = None if column.ranking_only else np.clip(scores, 0.0, 1.0)
    drawn = balanced_figures(scores, probability, correct, PROTOCOL)
    within = what_count_adds(-scores, length, correct, bins=10).count_within
    if drawn.auroc is None or within is None:
        raise ValueError(f"{used.group.benchmark}: one class only")
    auroc = resamples.auroc(drawn.auroc, places, scores, correct)
    aurc = metrics.aurc(scores, correct)
    if probability is None or drawn.ece is None:
        return _One(auroc, within, aurc, None, np.nan, np.nan, np.nan)
    moved = _moved(probability, used.accuracy)
    return _One(
        auroc=auroc,
        equal_length=within,
        aurc=aurc,
        ece=resamples.balanced_ece(drawn.ece, places, probability, correct, PROTOCOL.bins),
        natural_ece=metrics.ece(probability, correct, PROTOCOL.bins),
        shifted_ece=np.nan if moved is None else metrics.ece(moved, correct, PROTOCOL.bins),
        brier=metrics.brier(probability, correct),
    )


def _moved(probability: Floats, accuracy: float) -> Floats | None:
    """Without labels, to the share right that agreement suggests; None where nothing gets there."""
    shift = shift_to_mean(probability, accuracy).value
    return None if shift is None else shifted(probability, shift)


def _found(case: Case, way: Way) -> float | None:
    """Of right responses with one change each, the share that scores below its original."""
    by_key: dict[str, dict[str, list[float]]] = {}
    for row in case.rows("changed"):
        by_key.setdefault(row.key, {}).setdefault(row.change, []).append(way.score(row.trace))
    wins = list(_wins(by_key))
    return _mean(wins) if wins else None


def _wins(by_key: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[float]:
    """1 where a changed copy scores lower, one half where as high."""
    for changes in by_key.values():
        (original,) = changes["none"]
        for change, scores in changes.items():
            if change != "none":
                yield from (float(s < original) + 0.5 * float(s == original) for s in scores)


def _about(case: Case, rows: Sequence[Row], used: Sequence[_Used]) -> About:
    rng = np.random.default_rng(0)
    return About(
        case=case.name,
        groups=len(used),
        problems=len({(row.benchmark, row.problem_id) for row in rows}),
        responses=len(rows),
        cut_off=sum(row.truncated for row in rows),
        scored=sum(int(u.kept.sum()) for u in used),
        tokens=_mean([float(len(row.trace)) for row in rows]),
        accuracy=_mean([float(u.correct.mean()) for u in used]),
        estimated=_mean([u.accuracy for u in used]),
        floor=_mean([_floor(u.correct, rng) for u in used]),
    )


def _floor(correct: Bools, rng: np.random.Generator) -> float:
    """Mean balanced ECE of 100 evenly spread confidences that are true, with as many responses."""
    n = 2 * min(int(correct.sum()), int((~correct).sum()))
    drawn: list[float] = []
    for _ in range(100):
        confidence = rng.random(n)
        drawn.append(metrics.ece(confidence, rng.random(n) < confidence, PROTOCOL.bins))
    return _mean(drawn)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
