"""Stated confidence: what a model says about itself, alone and tempered by the count."""

from __future__ import annotations

from divtok.errors import UsageError
from divtok.records import Statement, Trace
from divtok.score.estimators.dtc import divergent_count
from divtok.score.registry import estimator


@estimator("verbalized", needs=("statement",), label="Verb.", order=130)
def verbalized(statement: Statement) -> float:
    """The confidence that the generator states."""
    if statement.value is None:
        raise UsageError("A statement without a value has no confidence.")
    return statement.value


@estimator("verbalized_dtc", needs=("jsd_bits", "statement"), label="Verb. DTC", order=140)
def verbalized_dtc(trace: Trace, statement: Statement, *, theta: float, k: int = 4) -> float:
    """The stated confidence to the power m + k, as dtc_prod does with the mean probability."""
    return verbalized(statement) ** (divergent_count(trace, theta=theta) + k)
