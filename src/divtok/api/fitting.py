"""Rows with outcomes in, a theta, a rate or a map out: what `divtok fit --run` does for a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import numpy as np

from divtok.api.batch import Confidences
from divtok.api.figures import Outcomes as Given
from divtok.api.figures import decided, traces_of
from divtok.api.rows import is_missing
from divtok.config.made_with import divtok_version
from divtok.errors import DataError, UsageError
from divtok.evaluate.fit import PAPER_GRID, ThetaFit
from divtok.evaluate.fit_any import (
    AnyFit,
    fitted_estimator,
    map_of,
    rate_of,
    record_of,
    theta_of,
)
from divtok.evaluate.fit_map import MapFit
from divtok.evaluate.fit_rate import RateFit
from divtok.evaluate.maps import MapKind
from divtok.evaluate.metrics import Ints
from divtok.evaluate.outcomes import Outcomes, by_agreement, by_grades
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.votes import NO_ANSWER
from divtok.records import Scalar, Trace
from divtok.score.fitted import TARGETS, Target, What, one_of
from divtok.score.registry import Estimator, bind_parameters


@overload
def fit(
    confidences: Confidences,
    correct: Given | None = None,
    problem_ids: Iterable[str] | None = None,
    *,
    what: Literal["theta"] = "theta",
    target: Target = "grades",
    answers: Iterable[Hashable] | None = None,
    grid: Sequence[float] = PAPER_GRID,
    n: int = 10,
    a: float = 0.95,
    b: float = 0.05,
    draws: int = 5,
    cap: int = 500,
    bins: int = 20,
    resamples: int = 1000,
) -> ThetaFit: ...
@overload
def fit(
    confidences: Confidences,
    correct: Given | None = None,
    problem_ids: Iterable[str] | None = None,
    *,
    what: Literal["rate"],
    estimator: str | None = None,
    target: Target = "grades",
    answers: Iterable[Hashable] | None = None,
    draws: int = 5,
    cap: int = 500,
    bins: int = 20,
    resamples: int = 1000,
) -> RateFit: ...
@overload
def fit(
    confidences: Confidences,
    correct: Given | None = None,
    problem_ids: Iterable[str] | None = None,
    *,
    what: MapKind,
    estimator: str | None = None,
    target: Target = "grades",
    answers: Iterable[Hashable] | None = None,
    bins: int = 20,
) -> MapFit: ...
def fit(
    confidences: Confidences,
    correct: Given | None = None,
    problem_ids: Iterable[str] | None = None,
    *,
    what: What = "theta",
    estimator: str | None = None,
    target: Target = "grades",
    answers: Iterable[Hashable] | None = None,
    grid: Sequence[float] = PAPER_GRID,
    n: int = 10,
    a: float = 0.95,
    b: float = 0.05,
    draws: int = 5,
    cap: int = 500,
    bins: int = 20,
    resamples: int = 1000,
) -> AnyFit:
    """The theta with the lowest balanced ECE of dtc_lin on these rows, and the curve behind it.

    Or, by `what`, the "rate" of dtc_weighted or dtc_guarded by the same objective, or a map of an
    estimator's values to probabilities, "isotonic" or "logistic". `figures` are judged by
    `correct`, on problems that were held out, too; `fitted` is what `confidence` takes.

    An `interval` is from resamples of whole problems: `problem_ids` says which rows are samples of
    one problem; left out, each row has its own. `notes` says in words what to keep in mind, such as
    an interval over most of the grid.

    With `target="agreement"` a row counts as right where it gives the most frequent of its
    problem's `answers` (None where it has none; equal answers are the same one), so that
    `problem_ids` are needed, with several rows each. The log-odds of a map are then moved by those
    of how often rows are right, as far as that agreement tells, less those of how many count as
    right. `correct` may be left out.

    Reads no model: the traces of `confidences` are enough. Choose it on problems that no figure of
    yours is about. `Run.fit` is the same for a run. `grid`, `n`, `a` and `b` are of a theta.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> rows = [("What is 1 + 1?", "1 + 1 = 2."), ("What is 1 + 1?", "Well, who knows!")]
        >>> found = divtok.confidences(rows, pair=pair, progress=False)
        >>> 0 < divtok.fit(found, [True, False]).theta < 1
        True
    """
    one_of("target", target, TARGETS)
    chosen = estimator
    if what in ("isotonic", "logistic") and estimator is None:
        chosen = confidences.estimator
    spec = fitted_estimator(what, chosen)
    rows = _outcomes(confidences, correct, problem_ids, target, answers)
    protocol = Protocol(draws=draws, cap=cap, bins=bins, resamples=resamples)
    known = {s.name: params for s, params in confidences.scoring.chosen}
    params: Mapping[str, Scalar]
    if what == "theta":
        params = {"n": n, "a": a, "b": b}
        found, used = theta_of(
            _read(confidences, rows), rows,
            before=confidences.theta, protocol=protocol, line=params, grid=grid,
        )  # fmt: skip
    elif what == "rate":
        params = known.get(spec.name) or bind_parameters(spec, {})
        found, used = rate_of(_read(confidences, rows), rows, spec, params, protocol=protocol)
    else:
        values, params = _values(confidences, spec), known[spec.name]
        found, used = map_of(what, spec.name, values, rows, protocol=protocol)
    unread = 0 if isinstance(found, MapFit) else confidences.traces.count(None)
    found = replace(found, excluded=found.excluded + unread)
    pair = confidences.scoring.pair
    fitted = record_of(
        found,
        used,
        rows,
        what=what,
        estimator=spec.name,
        params=params,
        tokens=confidences.scoring.tokens,
        pairs=[(pair.p.name, pair.q.name)],
        generators=[],
        made_of={},
        divtok=divtok_version(),
    )
    return replace(found, fitted=fitted)


def _outcomes(
    confidences: Confidences,
    correct: Given | None,
    problem_ids: Iterable[str] | None,
    target: Target,
    answers: Iterable[Any] | None,
) -> Outcomes:
    """What each row counts as; everything that is given describes the same rows."""
    if correct is None and target == "grades":
        raise UsageError(
            "Nothing says which rows are right.",
            next_step='Give outcomes, or answers and target="agreement".',
        )
    truth: list[bool | None] = [None] * len(confidences) if correct is None else decided(correct)
    ids = [str(row) for row in range(len(truth))]
    if problem_ids is not None:
        ids = [str(i) for i in problem_ids]
    if len(ids) != len(truth):
        raise DataError(
            f"There are {len(ids)} problem ids but {len(truth)} outcomes.",
            next_step="Both must describe the same rows, in the same order.",
        )
    traces_of(confidences, len(truth))  # an error where there are not as many, or none were kept
    if target == "grades":
        if answers is not None:
            raise UsageError(
                "Answers are for the target 'agreement'.", next_step='Give target="agreement".'
            )
        return by_grades(truth, ids)
    if answers is None:
        raise UsageError(
            "Nothing says which rows give the same answer.", next_step="Give answers=[...]."
        )
    if problem_ids is None:
        raise UsageError(
            "Nothing says which rows are samples of one problem, whose answers are compared.",
            next_step="Give problem_ids=[...], the same for each sample of a problem.",
        )
    given = list(answers)
    if len(given) != len(truth):
        raise DataError(
            f"There are {len(given)} answers but {len(truth)} rows.",
            next_step="Both must describe the same rows, in the same order.",
        )
    return by_agreement(truth, ids, ids, _numbers(given))


def _numbers(answers: Sequence[Any]) -> Ints:
    """Equal ones for equal answers, NO_ANSWER where there is none."""
    number: dict[Any, int] = {}
    found: list[int] = []
    for row, answer in enumerate(answers):
        try:
            hash(answer)
        except TypeError:
            raise UsageError(
                f"The answer of row {row} is a {type(answer).__name__}, which is not compared.",
                next_step="Give each answer as a text or a number, None where there is none.",
            ) from None
        missing = is_missing(answer)
        found.append(NO_ANSWER if missing else number.setdefault(answer, len(number)))
    return np.array(found, dtype=np.int64)


def _read(confidences: Confidences, rows: Outcomes) -> list[tuple[int, Trace]]:
    """The traces that there are, each with its row."""
    traces = traces_of(confidences, len(rows.label))
    return [(row, trace) for row, trace in enumerate(traces) if trace is not None]


def _values(confidences: Confidences, spec: Estimator) -> list[float | None]:
    found = confidences[spec.name]
    if "map" in found.params:
        raise UsageError(
            f"A map was applied to the confidences of '{spec.name}'.",
            next_step="Fit on confidences without it.",
        )
    return found.values
