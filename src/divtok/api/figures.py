"""Confidences and outcomes in, figures out: the same functions that `divtok evaluate` calls.

`ece` and `auroc` are what the verb prints under these names, means over balanced draws;
`natural_ece` and `natural_auroc` take every row once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from divtok.api.batch import Confidences
from divtok.api.rows import is_missing
from divtok.api.tables import Records
from divtok.errors import DataError, UsageError
from divtok.evaluate import metrics
from divtok.evaluate.metrics import Bools, Floats
from divtok.evaluate.protocol import Protocol, balanced_figures, evaluate_group
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions, known_verdicts
from divtok.evaluate.sweep.counts import count_traces, grids_with
from divtok.evaluate.sweep.rates import rates_with
from divtok.records import Evaluation, Grade, Trace, Verdict
from divtok.stages.swept import SweptRow, sweep_all, swept_rows

Values: TypeAlias = "Confidences | Iterable[float | None]"
# What a screen has room for of an evaluation.
FIGURES = (
    *("benchmark", "generator", "estimator", "n", "n_scored"),
    *("ece", "auroc", "natural_ece", "natural_auroc"),
)

# Right or wrong as a bool, 0 or 1, a verdict or a grade; None where it is not known.
Outcomes: TypeAlias = "Iterable[bool | float | str | Grade | None]"


def evaluate(
    confidences: Values | Mapping[str, Values],
    correct: Outcomes,
    problem_ids: Iterable[str] | None = None,
    *,
    truncated: Iterable[bool] | None = None,
    benchmark: str = "rows",
    generator: str = "",
    draws: int = 5,
    cap: int = 500,
    bins: int = 20,
    resamples: int = 1000,
) -> Records[Evaluation]:
    """Every figure of `divtok evaluate`: one record for each estimator.

    `confidences` are what `confidences` gave, or numbers, or several lists of them by name. Rows
    that are not scored (None or NaN), not decided, unanswered or `truncated` are left out of all
    figures but the accuracy, and counted in `excluded_by`. `problem_ids` says which rows are
    samples of one problem; left out, each row has its own. Balanced draws depend on the order of
    the rows: a run has them by problem and sample.

    Example:
        >>> import divtok
        >>> values = [0.95, 0.86, 0.41, 0.05, None]
        >>> (found,) = divtok.evaluate(values, [True, False, True, False, True])
        >>> found.auroc, found.natural_auroc, found.excluded_by["unscored"]
        (0.75, 0.75, 1)
    """
    group = group_of(
        confidences,
        correct,
        problem_ids,
        truncated=truncated,
        benchmark=benchmark,
        generator=generator,
    )
    protocol = Protocol(draws=draws, cap=cap, bins=bins, resamples=resamples)
    return Records(Evaluation, evaluate_group(group, protocol), shown=FIGURES)


def ece(
    confidences: Values, correct: Outcomes, *, draws: int = 5, cap: int = 500, bins: int = 20
) -> float | None:
    """Expected calibration error over balanced draws, as `divtok evaluate` prints it.

    None where there are no correct or no incorrect rows. `natural_ece` takes every row as it is.

    Example:
        >>> import divtok
        >>> round(divtok.ece([0.9, 0.8, 0.4, 0.1], [True, False, True, False]), 3)
        0.4
    """
    scores, right = usable(confidences, correct)
    probability = np.clip(scores, 0.0, 1.0)
    if not np.array_equal(probability, scores):
        raise DataError(
            "A confidence lies outside 0 to 1.",
            next_step="Give probabilities; auroc ranks by any number.",
        )
    protocol = Protocol(draws=draws, cap=cap, bins=bins)
    return balanced_figures(scores, probability, right, protocol).ece


def auroc(
    confidences: Values, correct: Outcomes, *, draws: int = 5, cap: int = 500
) -> float | None:
    """The chance that a correct row outranks an incorrect one, over balanced draws.

    None where there are no correct or no incorrect rows. `natural_auroc` takes every row once.

    Example:
        >>> import divtok
        >>> divtok.auroc([0.9, 0.8, 0.4, 0.1], [True, False, True, False])
        0.75
    """
    scores, right = usable(confidences, correct)
    return balanced_figures(scores, None, right, Protocol(draws=draws, cap=cap)).auroc


def natural_ece(confidences: Values, correct: Outcomes, *, bins: int = 20) -> float:
    """Expected calibration error of all rows as they are: the usual one, of equal-width bins.

    Example:
        >>> import divtok
        >>> round(divtok.natural_ece([0.9, 0.8, 0.4], [True, False, True]), 3)
        0.5
    """
    return metrics.ece(*usable(confidences, correct), bins)


def natural_auroc(confidences: Values, correct: Outcomes) -> float | None:
    """The chance that a correct row outranks an incorrect one, of all rows as they are.

    None where all rows are correct or all incorrect. The same as scikit-learn's `roc_auc_score`.

    Example:
        >>> import divtok
        >>> divtok.natural_auroc([0.9, 0.8, 0.4], [True, False, True])
        0.5
    """
    return metrics.auroc(*usable(confidences, correct))


def sweep(
    confidences: Confidences,
    correct: Outcomes,
    *,
    divergence: str | Sequence[str] = ("jsd",),
    n: int | Sequence[int] = (10,),
    k: int | Sequence[int] = (4,),
    a: float = 0.95,
    b: float = 0.05,
    rate: float = 1.0,
    draws: int = 5,
    cap: int = 500,
    bins: int = 20,
) -> Records[SweptRow]:
    """The best theta of dtc_lin for each n and of dtc_prod for each k, beside the one in use.

    Likewise the best rate of dtc_weighted, which takes no theta, beside `rate`.

    Reads no model. A theta that is chosen on the rows it is judged by looks better than it is.
    `Run.sweep` is the same for a run.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> rows = [("What is 1 + 1?", "1 + 1 = 2."), ("What is 1 + 1?", "Well, who knows!")]
        >>> found = divtok.confidences(rows, pair=pair, progress=False)
        >>> swept = divtok.sweep(found, [True, False], n=(5, 10))
        >>> [(row.estimator, row.value) for row in swept if row.parameter != "rate"]
        [('dtc_lin', 5), ('dtc_lin', 10), ('dtc_prod', 4)]
    """
    outcomes = decided(correct)
    used = [
        (trace, outcome)
        for trace, outcome in zip(traces_of(confidences, len(outcomes)), outcomes, strict=True)
        if outcome is not None and trace is not None and trace.status == "ok"
    ]
    pair, names = confidences.scoring.pair, list(dict.fromkeys(_several(divergence)))
    counted = count_traces(
        used,
        p=pair.p.name,
        q=pair.q.name,
        grids=grids_with(confidences.theta, names),
        excluded=len(outcomes) - len(used),
    )
    protocol = Protocol(draws=draws, cap=cap, bins=bins)
    swept = sweep_all(
        [counted],
        names,
        n=_several(n),
        k=_several(k),
        a=a,
        b=b,
        rates=rates_with(rate),
        protocol=protocol,
    )
    rows = (row for s in swept for row in swept_rows(s, confidences.theta, rate))
    return Records(SweptRow, rows)


def group_of(
    confidences: Values | Mapping[str, Values],
    correct: Outcomes,
    problem_ids: Iterable[str] | None = None,
    *,
    truncated: Iterable[bool] | None = None,
    benchmark: str = "rows",
    generator: str = "",
) -> ScoredGroup:
    """Rows of somebody's own as one group; without `problem_ids` each row is a problem."""
    columns = _columns(confidences)
    verdicts = [_verdict(outcome) for outcome in correct]
    n = len(verdicts)
    ids = [str(row) for row in range(n)] if problem_ids is None else [str(i) for i in problem_ids]
    return ScoredGroup(
        benchmark=benchmark,
        generator=generator,
        problem_id=ids,
        verdict=verdicts,
        truncated=[False] * n if truncated is None else _truncated(truncated),
        length=[0] * n,
        count=[None] * n,
        columns=columns,
    )


def _several(given: Any) -> list[Any]:
    """One value, or several."""
    one = isinstance(given, str) or not isinstance(given, Iterable)
    return [given] if one else list(cast(Iterable[Any], given))


def _columns(given: Values | Mapping[str, Values]) -> list[ScoreColumn]:
    if isinstance(given, Confidences):
        given = {name: given[name] for name in given.estimators}
    lists: Any = given if isinstance(given, Mapping) else {"confidence": given}
    return [_column(name, values) for name, values in cast(Mapping[str, Values], lists).items()]


def _column(name: str, values: Values) -> ScoreColumn:
    if isinstance(values, Confidences):
        return ScoreColumn(name, values.values, values.params, low=values.certain)
    return ScoreColumn(name, numbers_of(values))


def numbers_of(given: Iterable[float | None]) -> list[float | None]:
    values = [None if is_missing(value) else _number(value) for value in given]
    return [None if is_missing(value) else value for value in values]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{value!r} is not a confidence.",
            next_step="Give numbers, None where there is none, or what divtok.confidences gave.",
        ) from error


def _truncated(given: Iterable[Any]) -> list[bool]:
    cut = list(given)
    unknown = [row for row, value in enumerate(cut) if is_missing(value)]
    if unknown:
        raise UsageError(
            f"truncated does not say whether row {unknown[0]} was cut.",
            next_step="Give True or False for each row.",
        )
    return [bool(value) for value in cut]


def _verdict(outcome: Any) -> str:
    if isinstance(outcome, Grade):
        return outcome.verdict
    if isinstance(outcome, str):
        return outcome  # an unknown one is refused where verdicts are checked
    if is_missing(outcome):
        return Verdict.UNDETERMINED
    if outcome not in (0, 1):
        raise UsageError(
            f"{outcome!r} does not say whether a row is correct.",
            next_step="Give True, False, None, a verdict, or what divtok.grade gave.",
        )
    return Verdict.CORRECT if outcome else Verdict.INCORRECT


def usable(confidences: Values, correct: Outcomes) -> tuple[Floats, Bools]:
    """The rows that have a value and a decided outcome, [N] each."""
    if isinstance(confidences, Confidences):
        confidences = confidences.values
    values = ScoreColumn("confidence", numbers_of(confidences)).array()
    verdicts = [_verdict(outcome) for outcome in correct]
    known_verdicts(verdicts)
    if len(values) != len(verdicts):
        raise DataError(
            f"There are {len(values)} confidences but {len(verdicts)} outcomes.",
            next_step="Both must describe the same rows, in the same order.",
        )
    kept, _ = exclusions(verdicts, [False] * len(verdicts), values)
    right = np.array([verdict == Verdict.CORRECT for verdict in verdicts], dtype=bool)
    return values[kept], right[kept]


def decided(correct: Outcomes) -> list[bool | None]:
    decided = {Verdict.CORRECT: True, Verdict.INCORRECT: False}
    verdicts = [_verdict(outcome) for outcome in correct]
    known_verdicts(verdicts)
    return [decided.get(Verdict(verdict)) for verdict in verdicts]


def traces_of(confidences: Confidences, outcomes: int) -> list[Trace | None]:
    """The trace of every row; one that was not read has none."""
    rows = confidences.rows
    if len(rows) != outcomes:
        raise DataError(
            f"There are {len(rows)} confidences but {outcomes} outcomes.",
            next_step="Both must describe the same rows, in the same order.",
        )
    if any(row.trace is None and row.counts is not None for row in rows):
        raise UsageError(
            "The traces of these rows were not kept.",
            next_step="Call confidences with keep_traces=True.",
        )
    return [row.trace for row in rows]
