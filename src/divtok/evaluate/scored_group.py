"""The scored responses of one generator on one benchmark: what evaluate and report take in.

Plain aligned columns, built from any table. Knows which responses a metric leaves out and why;
knows no metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.errors import DataError
from divtok.evaluate.metrics import Bools, Floats
from divtok.records import CountedTokens, Scalar, Verdict

# In order of precedence: a response is counted under the first that applies. No answer comes
# first because nothing later can be asked of such a response; a missing confidence comes last, so
# that the first three are the same for every estimator of a group.
EXCLUSION_REASONS = ("unanswered", "truncated", "undetermined", "unscored")
# The parameter that says whose share of right answers values are stated for, and that of a map.
PRIOR_FROM, FROM_MAP = "prior_from", "map"


@dataclass(frozen=True, slots=True, eq=False)
class ScoreColumn:
    """One estimator's values for every response of a group; None where it gave none.

    `ranking_only` marks values that order responses but are no probabilities (length, count).
    `beyond` says of every response whether it is longer than the `trained_length` of the model
    behind the estimator; None where there is no such model. `prior` is the share of right answers
    that the values are stated for, None where they are as the estimator gives them. `low` are what
    values are at least, where a trace gave bounds only; None where none did.
    """

    estimator: str
    values: Sequence[float | None]
    params: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])
    ranking_only: bool = False
    beyond: Sequence[bool] | None = None
    trained_length: int | None = None
    prior: float | None = None
    low: Sequence[float | None] | None = None

    def __post_init__(self) -> None:
        for row, value in enumerate(self.values):
            if value is not None and not math.isfinite(value):
                raise DataError(
                    f"Estimator '{self.estimator}' has the value {value} in row {row}.",
                    next_step="A missing confidence is None, with its reason kept in the store.",
                )

    def array(self) -> Floats:
        """[N] values, NaN where there is none."""
        return _array(self.values)

    def certain(self) -> Floats:
        """[N] what values are at least: those themselves where the trace was exact."""
        if self.low is None:
            return self.array()
        low = _array(self.low)
        return np.where(np.isnan(low), self.array(), low)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredGroup:
    """All N responses of one generator on one benchmark, in a fixed order.

    The balanced draws depend on the order of the rows, so whoever builds a group sorts them by
    something stable (problem, then sample). `length` is the number of response tokens and `count`
    the number of divergent tokens, None where a response has no usable trace. `pair` and `theta`
    say who read them and above which divergence a token counts, where that is known; `counted` says
    which tokens can. `fallback` [N] says whose answer was found by one, None where none was looked
    for. `answer` [N] are numbers, equal where two responses give the same answer to a problem and
    negative where a response gives none; None where answers were not compared. `key` are those of
    the trajectories, where the group is of a run.
    """

    benchmark: str
    generator: str
    problem_id: Sequence[str]
    verdict: Sequence[Verdict | str]
    truncated: Sequence[bool]
    length: Sequence[int]
    count: Sequence[int | None]
    columns: Sequence[ScoreColumn]
    pair: tuple[str, str] | None = None
    theta: float | None = None
    counted: CountedTokens = "reasoning"
    fallback: Sequence[bool] | None = None
    answer: Sequence[int] | None = None
    key: Sequence[str] | None = None

    def __post_init__(self) -> None:
        n = len(self.problem_id)
        sizes = {
            "verdict": len(self.verdict),
            "truncated": len(self.truncated),
            "length": len(self.length),
            "count": len(self.count),
            **({} if self.fallback is None else {"fallback": len(self.fallback)}),
            **({} if self.answer is None else {"answer": len(self.answer)}),
            **({} if self.key is None else {"key": len(self.key)}),
            **{f"column '{c.estimator}'": len(c.values) for c in self.columns},
        }
        wrong = [f"{name} has {size}" for name, size in sizes.items() if size != n]
        if n == 0 or wrong:
            raise DataError(
                f"The group {self.benchmark} / {self.generator} has {n} rows"
                + ("." if not wrong else ", but " + ", ".join(wrong) + "."),
                next_step="Every column describes the same one or more responses.",
            )
        known_verdicts(self.verdict)

    def correct(self) -> Bools:
        """[N] True where the answer was right, truncated or not."""
        return np.array([v == Verdict.CORRECT for v in self.verdict], dtype=bool)

    def graded(self) -> Bools:
        """[N] True where the response is answered, complete and decided: right or wrong."""
        kept, _ = exclusions(self.verdict, self.truncated, np.zeros(len(self.verdict)))
        return kept


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of one generator on one benchmark that count in no figure, accuracy included.

    A response that failed and one without a gold answer, or without a verdict where those of
    another tool are the grades, are not wrong answers.
    """

    benchmark: str
    generator: str
    failed: int
    gold_missing: int
    verdict_missing: int = 0


def by_generator(groups: Sequence[ScoredGroup]) -> dict[str, list[ScoredGroup]]:
    """The groups of each generator, one for each benchmark, in the order that they have."""
    found: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        found.setdefault(group.generator, []).append(group)
    return found


def _array(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def known_verdicts(verdict: Sequence[Verdict | str]) -> None:
    """Refuse a verdict that grading cannot give: unknown ones would vanish from every count."""
    unknown = sorted({str(v) for v in verdict} - {v.value for v in Verdict})
    if unknown:
        raise DataError(
            f"Unknown verdict {', '.join(map(repr, unknown))}.",
            next_step="Known: " + ", ".join(v.value for v in Verdict) + ".",
        )


def exclusions(
    verdict: Sequence[Verdict | str], truncated: Sequence[bool], values: Floats
) -> tuple[Bools, dict[str, int]]:
    """[N] mask of the responses a metric may use, and how many are left out for each reason.

    `values` [N] is NaN where the estimator gave nothing. Each response is counted once, under the
    first of `EXCLUSION_REASONS` that applies to it.
    """
    names = np.array([str(v) for v in verdict])
    applies = {
        "unanswered": names == Verdict.UNANSWERED.value,
        "truncated": np.asarray(truncated, dtype=bool),
        "undetermined": names == Verdict.UNDETERMINED.value,
        "unscored": np.isnan(values),
    }
    kept = np.ones(len(names), dtype=bool)
    excluded_by: dict[str, int] = {}
    for reason in EXCLUSION_REASONS:
        newly = kept & applies[reason]
        excluded_by[reason] = int(newly.sum())
        kept &= ~newly
    return kept, excluded_by
