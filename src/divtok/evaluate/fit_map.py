"""Fit a map, and say what it is worth on problems it was not fitted on.

Where outcomes are only pseudo-labels, the map's log-odds are moved by those of how often the
generator is estimated to be right, less those of the labels' own share. The mean of what it then
says comes near that estimate; it is not set to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.errors import DataError
from divtok.evaluate.cross_fit import CrossFitted, Values, cross_fitted
from divtok.evaluate.maps import MapKind, fit_map
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.protocol import FEWEST_OF_A_CLASS
from divtok.score.fitted import ConfidenceMap, Fitted, logit

# rows -> how often their responses are right, as far as it is known otherwise than from labels
Estimate = Callable[[Ints], float]


@dataclass(frozen=True, slots=True)
class MapFit:
    """A map of one estimator's values to probabilities, fitted on `n` responses.

    `prior` is how often they are right: by their grades, or as estimated from the agreement of
    samples. `label_share` is how many count as right in what was fitted on.
    """

    map: ConfidenceMap
    estimator: str
    n: int
    excluded: int
    problems: int
    wrong: int
    prior: float
    label_share: float
    figures: CrossFitted
    fitted: Fitted | None = None
    more_notes: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to keep in mind before the map is used, in sentences; empty where nothing is."""
        fewest = min(self.wrong, self.n - self.wrong)
        found: list[str] = []
        if fewest < FEWEST_OF_A_CLASS:
            what = "wrong" if 2 * self.wrong <= self.n else "right"
            found.append(
                f"Only {fewest} responses are {what}, fewer than {FEWEST_OF_A_CLASS}: the map is "
                "mostly chance; take more samples or problems."
            )
        return (*found, *self.more_notes)


def map_fit(
    kind: MapKind,
    estimator: str,
    values: Floats,
    correct: Bools,
    problem: Ints,
    *,
    truth: Sequence[bool | None] | None = None,
    estimate: Estimate | None = None,
    bins: int = 20,
    excluded: int = 0,
    more_notes: tuple[str, ...] = (),
) -> MapFit:
    """A map for values [N] with outcomes [N] of problems [N], numbers from 0.

    `truth` are the grades to judge by, where others than the outcomes. With `estimate` the map's
    log-odds are moved by those of how often the responses of these rows are right by it, less those
    of their labels' share.
    """

    def fitted_on(rows: Ints) -> ConfidenceMap:
        found = fit_map(kind, values[rows], correct[rows])
        if estimate is None:
            return found
        odds = logit(np.array([_inside(estimate(rows)), correct[rows].mean()]))
        return found.shifted(float(odds[0] - odds[1]))

    def learn(rows: Ints) -> Values:
        found = fitted_on(rows)
        return lambda others: found(values[others])

    every = np.arange(len(values))
    share = float(correct.mean()) if len(correct) else 0.0
    found = fitted_on(every)
    return MapFit(
        map=found,
        estimator=estimator,
        n=len(values),
        excluded=excluded,
        problems=int(problem.max()) + 1,
        wrong=int((~correct).sum()),
        prior=share if estimate is None else estimate(every),
        label_share=share,
        figures=cross_fitted(
            problem,
            correct.tolist() if truth is None else truth,
            values if ((values >= 0) & (values <= 1)).all() else None,
            learn,
            bins=bins,
        ),
        more_notes=more_notes,
    )


def _inside(share: float) -> float:
    if not 0 < share < 1:
        raise DataError(
            f"The samples of a problem agree so much or so little ({share:g} right by their "
            "agreement) that the log-odds of a map cannot be moved by it.",
            next_step="Take more problems, harder or easier ones, or more samples of each.",
        )
    return share
