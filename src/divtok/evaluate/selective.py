"""Selective prediction: how often accepted answers are wrong, and how many may be accepted.

A threshold accepts the responses whose confidence is at least as high. Its coverage is their share
of all responses, its risk the share of wrong answers among them. Responses that tie are accepted
together, since no threshold splits them. `score` and `correct` have shape [N]; any finite score
will do, in [0, 1] or not.

A threshold that was chosen on these responses looks better on them than it is; `decide/` chooses
one with a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError
from divtok.evaluate.metrics import Bools, Floats, Ints, finite, outcomes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The figures of an evaluation, and the risk that each is the coverage at.
COVERAGES: Mapping[str, float] = {
    "coverage_at_1": 0.01,
    "coverage_at_5": 0.05,
    "coverage_at_10": 0.1,
}
ROUNDING = 1e-9  # of a number of wrong answers: 0.29 * 100 is stored just below 29


@dataclass(frozen=True, slots=True, eq=False)
class RiskCoverage:
    """What each threshold accepts, [L] from the highest confidence to the lowest.

    Example:
        >>> import divtok
        >>> curve = divtok.risk_coverage([0.9, 0.8, 0.4, 0.1], [True, False, True, True])
        >>> curve.coverage.tolist(), curve.risk.tolist()
        ([0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.3333333333333333, 0.25])
    """

    threshold: Floats
    accepted: Ints
    wrong: Ints  # among the accepted

    @property
    def coverage(self) -> Floats:
        """The share of all responses that is accepted."""
        return self.accepted / self.accepted[-1]

    @property
    def risk(self) -> Floats:
        """The share of wrong answers among the accepted."""
        return self.wrong / self.accepted

    def at(self, risk: float) -> float:
        """The largest coverage at a risk of at most this; 0 where no threshold has it.

        Every threshold is looked at: a risk may rise above the limit and come down again.
        """
        if not 0 <= risk <= 1:
            raise UsageError(
                f"A risk must be between 0 and 1, not {risk:g}.", next_step="Write 5 % as 0.05."
            )
        allowed = np.flatnonzero(self.wrong <= risk * self.accepted + ROUNDING)
        return float(self.coverage[allowed[-1]]) if len(allowed) else 0.0

    def plot(self, ax: Axes, *, label: str | None = None) -> None:
        """Draw risk over coverage on matplotlib axes, both in percent."""
        ax.plot(100 * self.coverage, 100 * self.risk, label=label)
        ax.set_xlabel("accepted (% of responses)")
        ax.set_ylabel("wrong among them (%)")


def risk_coverage(score: npt.ArrayLike, correct: npt.ArrayLike) -> RiskCoverage:
    """The risk-coverage curve: one point for each value that a threshold can have."""
    values = finite(score)
    right = outcomes(correct, len(values))
    distinct, level, size = np.unique(values, return_inverse=True, return_counts=True)
    wrong = np.bincount(level[~right], minlength=len(size))
    return RiskCoverage(distinct[::-1], np.cumsum(size[::-1]), np.cumsum(wrong[::-1]))


def coverage_at_risk(score: npt.ArrayLike, correct: npt.ArrayLike, risk: float) -> float:
    """The largest share of responses that a threshold accepts at a risk of at most `risk`."""
    return risk_coverage(score, correct).at(risk)


def perfect_score(correct: Bools) -> Floats:
    """Scores that rank every right answer above every wrong one, without ties among the wrong."""
    return np.where(correct, 1.0, -np.arange(len(correct)))


def aurc_influence(score: Floats, correct: Bools) -> Floats:
    """[N] how far each response moves AURC, times N; they add up to 0.

    One more response at rank j adds the risk there, and pulls every later risk towards its own
    outcome: at rank k by 1/k of the difference. Within a tie it has any of the ranks.
    """
    n = len(score)
    _, level, size = np.unique(-score, return_inverse=True, return_counts=True)
    wrong = np.repeat(np.bincount(level, weights=~correct) / size, size)
    rank = np.arange(1, n + 1)
    risk = np.cumsum(wrong) / rank
    pull = _from_here_on(1 / rank)
    moved = risk - _from_here_on(risk / rank)
    starts = np.cumsum(size) - size
    pull, moved = (np.add.reduceat(each, starts) / size for each in (pull, moved))
    return moved[level] + pull[level] * ~correct - risk.mean()


def _from_here_on(values: Floats) -> Floats:
    """[N] the sum of each value and all later ones."""
    return np.cumsum(values[::-1])[::-1]
