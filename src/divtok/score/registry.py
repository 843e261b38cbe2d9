"""Estimators by name, their parameters, and the one place where a confidence is checked.

An estimator is a pure function `f(trace, *evidence, *, parameters) -> float`, registered with a
decorator. What it needs is declared, so that a run gathers that and nothing else, and can refuse it
before any model is loaded: it gets the trace unless evidence is all it needs, then each piece of
evidence it names, in that order.

An estimator that needs divergences never rises with one of them: so where a trace has bounds on its
divergences, the confidence lies between those of the two bounds.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from divtok.errors import DataError, DivtokError, UsageError, did_you_mean
from divtok.records import (
    EVIDENCE,
    PER_TOKEN_FIELDS,
    Confidence,
    Evidence,
    FloatArray,
    Scalar,
    Trace,
)
from divtok.registry import Registry

EstimatorFunction = Callable[..., float]
# Parameters learned from all traces of one generator on one benchmark, without their grades.
FitFunction = Callable[[Sequence[Trace]], Mapping[str, Scalar]]

NOT_GATHERED = "not gathered"
# What bounds on divergences say nothing about.
_EXACT_ONLY = ("entropy_p", "entropy_q", "kl_pq", "kl_qp")

# Legal ranges of the parameters that estimators share: lowest, highest.
PARAMETER_RANGES: dict[str, tuple[float, float]] = {
    "theta": (0.0, 1.0),
    "n": (1, math.inf),
    "k": (0, math.inf),
    "a": (0.0, 1.0),
    "b": (0.0, 1.0),
    "c_global": (0.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class Estimator:
    """A registered estimator. `bounded` ones must return a value in [0, 1]."""

    name: str
    function: EstimatorFunction
    needs: tuple[str, ...]
    parameters: Mapping[str, Scalar | None]  # default values; None where one must be given
    bounded: bool
    ranking_only: bool
    summary: str
    fit: FitFunction | None = None

    @property
    def needs_trace(self) -> bool:
        """Of an estimator that names no evidence either, a trace is all that is left."""
        return not self.evidence or any(need in PER_TOKEN_FIELDS for need in self.needs)

    @property
    def needs_exact(self) -> bool:
        """Whether bounds on divergences leave it without a value."""
        return any(need in _EXACT_ONLY for need in self.needs)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The pieces of evidence it is given, in order."""
        return tuple(need for need in self.needs if need in EVIDENCE)


ESTIMATORS: Registry[Estimator] = Registry("estimator", group="divtok.estimators")


def estimator(
    name: str,
    *,
    needs: tuple[str, ...],
    bounded: bool = True,
    ranking_only: bool = False,
    fit: FitFunction | None = None,
) -> Callable[[EstimatorFunction], EstimatorFunction]:
    """Register a function as an estimator. Ranking-only values have an order but no scale."""
    known = (*PER_TOKEN_FIELDS, *EVIDENCE)
    unknown = [need for need in needs if need not in known]
    if unknown:
        raise UsageError(
            f"The estimator '{name}' needs '{unknown[0]}', which no trace has.",
            next_step=did_you_mean(unknown[0], known),
        )

    def register(function: EstimatorFunction) -> EstimatorFunction:
        parameters = {
            p.name: None if p.default is inspect.Parameter.empty else p.default
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
        ESTIMATORS.add(
            name,
            Estimator(
                name,
                function,
                needs,
                parameters,
                bounded and not ranking_only,
                ranking_only,
                summary,
                fit,
            ),
        )
        return function

    return register


def bind_parameters(spec: Estimator, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The estimator's full parameters: what was given for it, and its defaults for the rest."""
    bound: dict[str, Scalar] = {}
    for name, default in spec.parameters.items():
        value = given.get(name, default)
        if value is None:
            raise UsageError(
                f"The estimator '{spec.name}' needs a value for '{name}'.",
                next_step=f"Give it as score.{name}=VALUE, or use a family that brings one.",
            )
        check_parameter(name, value)
        bound[name] = value
    if bound.keys() >= {"a", "b"} and float(bound["b"]) > float(bound["a"]):
        raise UsageError(
            f"b ({bound['b']}) is above a ({bound['a']}): more divergence would mean more trust.",
            next_step="Give b a value up to a.",
        )
    return bound


def check_parameter(name: str, value: Scalar) -> None:
    """Refuse a number that is not finite, and a shared parameter outside its range."""
    number = None if isinstance(value, bool | str) else value
    if name not in PARAMETER_RANGES:
        if number is not None and not math.isfinite(number):
            raise UsageError(f"{name} must be finite, not {value}.", next_step="Correct its value.")
        return
    low, high = PARAMETER_RANGES[name]
    if number is None or not math.isfinite(number) or not low <= number <= high:
        bounds = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise UsageError(f"{name} must be {bounds}, not {value}.", next_step="Correct its value.")


def score_trace(spec: Estimator, trace: Trace, parameters: Mapping[str, Scalar]) -> Confidence:
    """One confidence for one trace; a trace without numbers gives None and the trace's reason."""
    return score_evidence(spec, trace.key, trace, Evidence(), parameters)


def score_evidence(
    spec: Estimator,
    key: str,
    trace: Trace | None,
    evidence: Evidence,
    parameters: Mapping[str, Scalar],
) -> Confidence:
    """One confidence for one trajectory; where something it needs is missing, None and why."""
    missing = _missing(spec, trace, evidence)
    if missing is not None:
        return Confidence(key, spec.name, parameters, None, missing)
    value = _value(spec, key, trace, evidence, parameters)
    if trace is None or trace.exact or "jsd_bits" not in spec.needs:
        return Confidence(key, spec.name, parameters, value)
    low, high = (
        _value(spec, key, _replaced(trace, bound), evidence, parameters)
        for bound in (trace.jsd_high_bits, trace.jsd_low_bits)
    )
    if not low <= value <= high:
        raise DivtokError(
            f"The estimator '{spec.name}' rose with a divergence of trajectory {key}.",
            next_step="Correct the estimator: more divergence never means more confidence.",
        )
    return Confidence(key, spec.name, parameters, value, low=low, high=high)


def _replaced(trace: Trace, divergences: FloatArray | None) -> Trace:
    if divergences is None:
        raise DataError(f"The trace {trace.key} is not exact, but has no bounds.")
    return replace(trace, jsd_bits=divergences)


def _value(
    spec: Estimator,
    key: str,
    trace: Trace | None,
    evidence: Evidence,
    parameters: Mapping[str, Scalar],
) -> float:
    given: list[Any] = [trace] if spec.needs_trace else []
    given += [getattr(evidence, kind) for kind in spec.evidence]
    value = float(spec.function(*given, **parameters))
    if not math.isfinite(value) or (spec.bounded and not 0.0 <= value <= 1.0):
        raise DivtokError(
            f"The estimator '{spec.name}' returned {value} for trajectory {key}, "
            "which is not a confidence in [0, 1].",
            next_step="Correct the estimator, or register it with bounded=False.",
        )
    return value


def _missing(spec: Estimator, trace: Trace | None, evidence: Evidence) -> str | None:
    """Why the estimator cannot be asked; None where it can."""
    if spec.needs_trace and trace is None:
        return "not traced"
    if spec.needs_trace and trace is not None and trace.status != "ok":
        return f"{trace.status}: {trace.reason}"
    if trace is not None and not trace.exact and spec.needs_exact:
        unknown = next(need for need in spec.needs if need in _EXACT_ONLY)
        return f"{unknown}: not known from a server's most likely tokens"
    for kind in spec.evidence:
        found = getattr(evidence, kind)
        if found is None:
            return f"{kind}: {NOT_GATHERED}"
        if found.reason is not None:
            return f"{kind}: {found.reason}"
    return None
