"""Asking one estimator for a confidence: the one place where its value is checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from divtok.errors import DataError, DivtokError
from divtok.records import (
    Confidence,
    CountedTokens,
    FloatArray,
    Reason,
    Scalar,
    Trace,
    reason_kind,
)
from divtok.score.registry import Estimator, exact_only

NOT_TRACED = "not_traced"
NOT_GATHERED = "not_gathered"
NOT_EXACT = "not_exact"


def named_parameters(
    spec: Estimator, parameters: Mapping[str, Scalar], counted: CountedTokens
) -> Mapping[str, Scalar]:
    """What a confidence is said to be made with: which tokens count, too, where not the usual."""
    usual = counted == "reasoning" or not spec.counts
    return parameters if usual else {**parameters, "tokens": counted}


def score_trace(spec: Estimator, trace: Trace, parameters: Mapping[str, Scalar]) -> Confidence:
    """One confidence for one trace; a trace without numbers gives None and the trace's reason."""
    return score_evidence(spec, trace.key, trace, {}, parameters)


def score_evidence(
    spec: Estimator,
    key: str,
    trace: Trace | None,
    evidence: Mapping[str, Any],
    parameters: Mapping[str, Scalar],
) -> Confidence:
    """One confidence for one trajectory; where something it needs is missing, None and why.

    `evidence` has a record for each kind that was gathered.
    """
    missing = _missing(spec, trace, evidence)
    if missing is not None:
        return Confidence(key, spec.name, parameters, None, missing)
    value = _value(spec, key, trace, evidence, parameters)
    if trace is None or trace.exact or "jsd_bits" not in spec.needs:
        return Confidence(key, spec.name, parameters, value)
    high, low = (
        _value(spec, key, replace(trace, jsd_bits=bound), evidence, parameters)
        for bound in bounds_of(trace)
    )
    if not low <= value <= high:
        raise DivtokError(
            f"The estimator '{spec.name}' rose with a divergence of trajectory {key}.",
            next_step="Correct the estimator: more divergence never means more confidence.",
        )
    return Confidence(key, spec.name, parameters, value, low=low, high=high)


def bounds_of(trace: Trace) -> tuple[FloatArray, FloatArray]:
    """[T] each: the least and the most that the divergences of a trace may be, if not exact."""
    if trace.jsd_low_bits is None or trace.jsd_high_bits is None:
        raise DataError(f"The trace {trace.key} is not exact, but has no bounds.")
    return trace.jsd_low_bits, trace.jsd_high_bits


def _value(
    spec: Estimator,
    key: str,
    trace: Trace | None,
    evidence: Mapping[str, Any],
    parameters: Mapping[str, Scalar],
) -> float:
    given: list[Any] = [trace] if spec.needs_trace else []
    given += [evidence[kind] for kind in spec.evidence]
    value = float(spec.function(*given, **parameters))
    if not math.isfinite(value) or (spec.bounded and not 0.0 <= value <= 1.0):
        raise DivtokError(
            f"The estimator '{spec.name}' returned {value} for trajectory {key}, "
            "which is not a confidence in [0, 1].",
            next_step="Correct the estimator, or register it with bounded=False.",
        )
    return value


def _missing(spec: Estimator, trace: Trace | None, evidence: Mapping[str, Any]) -> Reason | None:
    """Why the estimator cannot be asked; None where it can."""
    if spec.needs_trace:
        lacking = _trace_lacks(spec, trace)
        if lacking is not None:
            return lacking
    for kind in spec.evidence:
        found = evidence.get(kind)
        if found is None:
            return Reason(NOT_GATHERED, f"{kind}: not gathered")
        if found.reason is not None:
            return Reason(reason_kind(found.reason) or "other", f"{kind}: {found.reason}")
    return None


def _trace_lacks(spec: Estimator, trace: Trace | None) -> Reason | None:
    if trace is None:
        return Reason(NOT_TRACED, "not traced")
    if trace.status != "ok":
        return Reason(trace.status, f"{trace.status}: {trace.reason}")
    if not trace.exact and spec.needs_exact:
        unknown = [need for need in spec.columns if need in exact_only()]
        return Reason(NOT_EXACT, f"{unknown[0]}: not known from a server's most likely tokens")
    for column in spec.columns:
        if trace.per_token(column) is None:
            return Reason(NOT_TRACED, f"{column}: not traced")
    return None
