"""Notes on rates that nobody fitted, and on what was fitted on the responses it is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divtok.records import Evaluation, Scalar
from divtok.report.note import Note
from divtok.score.registry import ESTIMATORS


def rate_note(evaluations: Sequence[Evaluation]) -> Note:
    """Estimators whose rate is the one they come with, so that their values have no scale yet."""

    def unfitted(evaluation: Evaluation) -> bool:
        if evaluation.estimator not in ESTIMATORS or "map" in evaluation.params:
            return False
        spec = ESTIMATORS.get(evaluation.estimator)
        usual = None if spec.rate_of is None else spec.parameters["rate"]
        return usual is not None and evaluation.params.get("rate") == usual

    names = list(dict.fromkeys(e.estimator for e in evaluations if unfitted(e)))
    return Note(
        key="rate_not_fitted",
        heading="Rate",
        title="No rate was fitted",
        about="A rate belongs to a pair, as theta does. It changes no order, so AUROC needs none; "
        "how near a value is to a probability depends on it.",
        lines=(
            f"{' and '.join(names)}: no rate was fitted for this pair. Trust the order; for values "
            "that are probabilities fit one: divtok fit --run RUN --what rate --estimator "
            f"{names[0] if len(names) == 1 else 'NAME'}.",
        )
        if names
        else (),
        value=unfitted,
    )


def fitted_here_note(fits: Sequence[Mapping[str, Any]]) -> Note:
    """`fits` are those that the run was scored with, as its manifest has them."""
    here = [fit for fit in fits if fit.get("fitted_here")]

    def value(evaluation: Evaluation) -> bool:
        return bool(fitted_here(fits, evaluation.estimator, evaluation.params))

    return Note(
        key="fitted_here",
        heading="Fitted here",
        title="Fitted on these responses",
        about="What is fitted on the responses it is judged by looks better than it is. `divtok "
        "fit` says what it is worth on problems that were held out.",
        lines=tuple(
            f"The {_named(fit)} of {fit['estimator']} was fitted on these responses: its figures "
            "look better than they are."
            for fit in here
        ),
        value=value,
    )


def fitted_here(
    fits: Sequence[Mapping[str, Any]], estimator: str, params: Mapping[str, Scalar]
) -> list[str]:
    """What of an estimator was fitted on the responses themselves."""
    # A theta is every estimator's that has one.
    return [
        _named(fit)
        for fit in fits
        if fit.get("fitted_here")
        and (fit["estimator"] == estimator or (fit["what"] == "theta" and "theta" in params))
    ]


def _named(fit: Mapping[str, Any]) -> str:
    return f"{fit['what']} map" if fit["what"] in ("isotonic", "logistic") else str(fit["what"])
