"""Fit a theta, a rate or a map on responses whose outcomes are known, or voted for.

The one way there, for a run and for rows in Python: both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias, cast

import numpy as np

from divtok.errors import UsageError
from divtok.evaluate.fit import ThetaFit, fit_theta
from divtok.evaluate.fit_map import MapFit, map_fit
from divtok.evaluate.fit_rate import RateFit, fit_rate
from divtok.evaluate.maps import MapKind
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.outcomes import Outcomes
from divtok.evaluate.protocol import Protocol
from divtok.records import CountedTokens, Scalar, Trace
from divtok.score.fit_file import with_identity
from divtok.score.fitted import PARAMETERS, WHATS, Fitted, What, one_of
from divtok.score.registry import ESTIMATORS, Estimator, in_order
from divtok.score.sets import one_estimator

AnyFit: TypeAlias = ThetaFit | RateFit | MapFit
DEFAULT_ESTIMATOR = "dtc_lin"  # of a map, as of a confidence


def fitted_estimator(what: str, estimator: str | None) -> Estimator:
    """The estimator that something is fitted for; one that does not go with it is refused."""
    one_of("what", what, WHATS)
    own = PARAMETERS.get(cast(What, what))
    if what == "rate":
        spec = one_estimator(estimator or PARAMETERS["rate"])
        if spec.rate_of is None:
            rated = [each.name for each in in_order(ESTIMATORS) if each.rate_of is not None]
            raise UsageError(
                f"'{spec.name}' has no rate to fit; these have one: {', '.join(rated)}.",
                next_step="Name one of them, or fit a map: isotonic or logistic.",
            )
        return spec
    if own is not None:
        if estimator not in (None, own):
            raise UsageError(
                f"A {what} is fitted for '{own}', not for '{estimator}'.",
                next_step="Leave out the estimator, or fit a map: isotonic or logistic.",
            )
        return one_estimator(own)
    spec = one_estimator(estimator or DEFAULT_ESTIMATOR)
    if spec.learned is not None:
        raise UsageError(
            f"'{spec.name}' learns its parameters from each group, so that no map fits another.",
            next_step="Fit a map of another estimator.",
        )
    if what == "logistic" and not spec.bounded:
        raise UsageError(
            f"'{spec.name}' is not a confidence from 0 to 1, which a logistic map needs.",
            next_step="Fit an isotonic map.",
        )
    return spec


def theta_of(
    traces: Iterable[tuple[int, Trace]],
    outcomes: Outcomes,
    *,
    before: float | None,
    protocol: Protocol,
    line: Mapping[str, Scalar],
    **given: Any,
) -> tuple[ThetaFit, Ints]:
    """The theta, and the rows it was fitted on. Each trace comes with its row; none is held."""
    used: list[int] = []
    seen: list[int] = []

    def labelled() -> Iterable[tuple[Trace, bool | None]]:
        for row, trace in traces:
            seen.append(row)
            if trace.status == "ok" and outcomes.label[row] is not None:
                used.append(row)
            yield trace, outcomes.label[row]

    def of_seen(values: Sequence[Any]) -> Iterable[Any]:
        place = 0
        while place < len(seen):  # asked for behind each trace
            yield values[seen[place]]
            place += 1

    found = fit_theta(
        labelled(),
        problem_ids=of_seen(outcomes.problem),
        truths=of_seen(outcomes.truth),
        before=before,
        protocol=protocol,
        n=int(line["n"]),
        a=float(line["a"]),
        b=float(line["b"]),
        **given,
    )
    rows = np.array(used, dtype=np.int64)
    return replace(found, more_notes=outcomes.notes(rows)), rows


def rate_of(
    traces: Iterable[tuple[int, Trace]],
    outcomes: Outcomes,
    spec: Estimator,
    params: Mapping[str, Scalar],
    *,
    protocol: Protocol,
) -> tuple[RateFit, Ints]:
    """The rate, and the rows it was fitted on. Each trace comes with its row; none is held.

    `params` are all of the estimator, with the rate in use.
    """
    assert spec.rate_of is not None
    others = {name: value for name, value in params.items() if name != "rate"}
    sums: list[float | None] = [None] * len(outcomes.label)
    seen = 0
    for row, trace in traces:
        seen += 1
        if trace.status == "ok" and (trace.exact or not spec.needs_exact):
            sums[row] = spec.rate_of(trace, **others)
    rows = outcomes.usable(sums)
    found = fit_rate(
        _floats(sums, rows),
        _labels(outcomes, rows),
        outcomes.numbers(rows),
        truth=[outcomes.truth[row] for row in rows],
        before=float(params["rate"]),
        protocol=protocol,
        excluded=seen - len(rows),
    )
    return replace(found, more_notes=outcomes.notes(rows)), rows


def map_of(
    kind: MapKind,
    estimator: str,
    values: Sequence[float | None],
    outcomes: Outcomes,
    *,
    protocol: Protocol,
) -> tuple[MapFit, Ints]:
    """The map of the values [N], and the rows it was fitted on."""
    rows = outcomes.usable(values)
    found = map_fit(
        kind,
        estimator,
        _floats(values, rows),
        _labels(outcomes, rows),
        outcomes.numbers(rows),
        truth=[outcomes.truth[row] for row in rows],
        estimate=None if outcomes.voted is None else lambda some: outcomes.prior(rows[some]),
        bins=protocol.bins,
        excluded=len(values) - len(rows),
    )
    return replace(found, more_notes=outcomes.notes(rows)), rows


def _floats(values: Sequence[float | None], rows: Ints) -> Floats:
    return np.array([values[row] for row in rows], dtype=np.float64)


def _labels(outcomes: Outcomes, rows: Ints) -> Bools:
    return np.array([outcomes.label[row] for row in rows], dtype=bool)


def record_of(
    found: AnyFit,
    rows: Ints,
    outcomes: Outcomes,
    *,
    what: What,
    estimator: str,
    params: Mapping[str, Scalar],
    tokens: CountedTokens,
    pairs: Sequence[tuple[str, str]],
    generators: Sequence[str],
    made_of: Mapping[str, Any],
    divtok: str,
) -> Fitted:
    """What is kept of a fit; `params` are those of its estimator but for what was fitted."""
    own: dict[str, Scalar] = {}
    if isinstance(found, ThetaFit):
        own["theta"] = found.theta
    elif isinstance(found, RateFit):
        own["rate"] = found.rate
    return with_identity(
        Fitted(
            what=what,
            estimator=estimator,
            params={**params, **own},
            tokens=tokens,
            pairs=tuple(pairs),
            generators=tuple(generators),
            target=outcomes.target,
            prior=outcomes.prior(rows),
            prior_from=outcomes.target,
            responses=found.n,
            problems=found.problems,
            map=found.map if isinstance(found, MapFit) else None,
            interval=None if isinstance(found, MapFit) else found.interval,
            figures={} if found.figures is None else asdict(found.figures),
            notes=found.notes,
            made_of=made_of,
            divtok=divtok,
        )
    )
