"""What fits are worth on a run, by its grades: the tables of docs/any-pair.md.

    python tools/measure_fits.py RUN FITTING_RUN

FITTING_RUN is `divtok fit tiny`: its pair's maps and rate, judged on the groups of RUN that this
pair wrote. The rate goes over all groups of RUN. For other pairs, maps are fitted on one half of a
group's problems and judged on the other, both ways round. RUN must be scored without a map.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np

from divtok.evaluate import metrics
from divtok.evaluate.cross_fit import parts
from divtok.evaluate.fit_map import map_fit
from divtok.evaluate.maps import MapKind
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.outcomes import Outcomes, by_agreement, by_grades
from divtok.evaluate.protocol import Protocol, balanced_figures
from divtok.score.fitted import TARGETS
from divtok.stages.fit import fit
from divtok.stages.stored import stored_config
from divtok.stages.votes import answer_numbers
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run

ESTIMATORS = ("dtc_weighted", "dtc_lin", "dtc_prod")


class Group:
    """The graded responses of one generator on one benchmark, and how all of its samples vote."""

    def __init__(self, run: Run, rows: Sequence[Response], numbers: dict[str, int]) -> None:
        self.generator, self.benchmark = rows[0].generator, rows[0].benchmark
        verdicts: dict[str, str] = dict(rows_of(run.grades, ("key", "verdict")))
        known = {"correct": True, "incorrect": False}
        self.truth = [known.get(verdicts[r.key]) for r in rows]
        self.problem = [r.problem_id for r in rows]
        self.answer = np.array([numbers[r.key] for r in rows], dtype=np.int64)
        self.keys = [r.key for r in rows]
        self.values: dict[str, list[float | None]] = {}

    def outcomes(self, target: str) -> Outcomes:
        if target == "grades":
            return by_grades(self.truth, self.problem)
        return by_agreement(self.truth, self.problem, self.problem, self.answer)

    def graded(self, estimator: str) -> tuple[Floats, Bools]:
        both = zip(self.values[estimator], self.truth, strict=True)
        used = [(v, t) for v, t in both if v is not None and t is not None]
        return np.array([v for v, _ in used]), np.array([t for _, t in used], dtype=bool)

    def halves(self, estimator: str, kind: MapKind, target: str) -> float:
        """Natural ECE of maps that were each fitted on the other half of the problems."""
        outcomes, values = self.outcomes(target), self.values[estimator]
        rows = outcomes.usable(values)
        half = parts(outcomes.numbers(rows), 2)
        given = np.array([values[row] for row in rows], dtype=np.float64)
        label = np.array([outcomes.label[row] for row in rows], dtype=bool)
        found = np.empty(len(rows))

        for number in (0, 1):
            mine, others = half != number, np.flatnonzero(half == number)
            among = rows[mine]
            estimate = None if target == "grades" else partial(_prior, outcomes, among)
            made = map_fit(
                kind, estimator, given[mine], label[mine], outcomes.numbers(among),
                truth=[None] * len(among), estimate=estimate,
            )  # fmt: skip
            found[others] = made.map(given[others])
        known = [(v, self.truth[row]) for v, row in zip(found, rows, strict=True)]
        used = [(v, t) for v, t in known if t is not None]
        return metrics.ece([v for v, _ in used], [t for _, t in used])


def _prior(outcomes: Outcomes, among: Ints, some: Ints) -> float:
    return outcomes.prior(among[some])


def groups_of(run: Run) -> list[Group]:
    config, responses = stored_config(run), stored_responses(run)
    numbers = answer_numbers(run, config, responses)
    members: dict[tuple[str, str], list[Response]] = {}
    for response in responses.values():
        members.setdefault(response.group, []).append(response)
    groups = [Group(run, rows, numbers) for rows in members.values()]
    values: dict[str, dict[str, float | None]] = {}
    columns = ("key", "estimator", "params", "value")
    for key, estimator, params, value in rows_of(run.confidences, columns):
        assert "map" not in json.loads(params), "score the run without a map"
        values.setdefault(estimator, {})[key] = value
    for group in groups:
        group.values = {e: [values[e].get(k) for k in group.keys] for e in ESTIMATORS}
    return groups


def main(run: Path, fitting_run: Path) -> None:
    groups, fitting = groups_of(Run.open(run)), Run.open(fitting_run)
    config = stored_config(fitting)
    (own,) = config.scored_pairs()
    for target in TARGETS:
        rate = fit(fitting, config, what="rate", target=target)
        assert rate.fitted is not None
        found = [balanced(group, rate.fitted.value) for group in groups]
        ece, auroc = np.mean(found, axis=0)
        print(f"rate {rate.fitted.value:g} ({target}): balanced ECE {ece:.1f}, AUROC {auroc:.1f}")
    for estimator in ESTIMATORS:
        mine = [group for group in groups if group.generator == own]
        print(f"{estimator}: natural ECE as it is {mean_ece(mine, estimator):.1f} on {own}'s "
              f"groups, {mean_ece(groups, estimator):.1f} on all")  # fmt: skip
        for kind in get_args(MapKind):
            for target in TARGETS:
                made = fit(fitting, config, what=kind, estimator=estimator, target=target)
                assert made.fitted is not None
                assert made.fitted.map is not None
                eces = [
                    metrics.ece(made.fitted.map(values), right)
                    for values, right in (group.graded(estimator) for group in mine)
                ]
                halves = [group.halves(estimator, kind, target) for group in groups]
                print(f"  {kind}, {target}: {100 * np.mean(eces):.1f} fitted on the fitting set, "
                      f"{100 * np.mean(halves):.1f} on half of each group (worst "
                      f"{100 * max(halves):.1f})")  # fmt: skip


def balanced(group: Group, rate: float) -> tuple[float, float]:
    """Balanced ECE and AUROC in percent of dtc_weighted at this rate; it was scored at 1."""
    values, right = group.graded("dtc_weighted")
    found = balanced_figures(values**rate, values**rate, right, Protocol())
    return 100 * (found.ece or 0.0), 100 * (found.auroc or 0.0)


def mean_ece(groups: Sequence[Group], estimator: str) -> float:
    return float(np.mean([100 * metrics.ece(*group.graded(estimator)) for group in groups]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
