"""The note on a theta, a rate or a map that was fitted on the responses it is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divtok.records import Evaluation
from divtok.report.note import Note


def fitted_here_note(fits: Sequence[Mapping[str, Any]]) -> Note:
    """`fits` are those that the run was scored with, as its manifest has them."""
    here = [fit for fit in fits if fit.get("fitted_here")]

    def value(evaluation: Evaluation) -> bool:
        # A theta is every estimator's that has one.
        return any(
            fit["estimator"] == evaluation.estimator
            or (fit["what"] == "theta" and "theta" in evaluation.params)
            for fit in here
        )

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


def _named(fit: Mapping[str, Any]) -> str:
    return f"{fit['what']} map" if fit["what"] in ("isotonic", "logistic") else str(fit["what"])
