"""Estimators by name: what each needs, its parameters, its label and its place in tables.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import UsageError
from divtok.records import PER_TOKEN_FIELDS, Scalar, Trace
from divtok.registry import Registry
from divtok.score.tokens import Sums

EstimatorFunction = Callable[..., float]
RatedSum = Callable[..., float]
Range = tuple[float, float]  # lowest, highest

# Ranges of the parameters that estimators share.
SHARED_RANGES: Mapping[str, Range] = {
    "theta": (0.0, 1.0),
    "n": (1, math.inf),
    "k": (0, math.inf),
    "a": (0.0, 1.0),
    "b": (0.0, 1.0),
    "c_global": (0.0, 1.0),
}

# Behind all that ship with divtok.
LAST = 1000


@dataclass(frozen=True, slots=True)
class Learned:
    """Parameters learned from all traces of one generator on one benchmark, without their grades.

    `each` gives a number for every trace, and `all` makes parameters of them: so traces need not be
    held at once.
    """

    each: Callable[[Trace], float]
    all: Callable[[Sequence[float]], Mapping[str, Scalar]]


@dataclass(frozen=True)  # without slots, so that what is derived is kept
class Estimator:
    """A registered estimator. `bounded` ones must return a value in [0, 1].

    `ranking_only` values have an order but no scale. `supervised` ones were trained with labels:
    they are shown for reference. `base_rate` is the share of right answers that its numbers were
    set for, None where for none in particular. `rate_of` gives the sum that its parameter `rate`
    is of, from a trace and its other parameters: the value is exp(-rate * sum), and a rate can be
    fitted. `never_rises` says that further tokens never raise its value, so that a response whose
    value is too low already need not be written to its end. `sums` gives the same values as the
    function does, from sums over tokens; None where none are declared.
    """

    name: str
    function: EstimatorFunction = field(repr=False)
    needs: tuple[str, ...]
    parameters: Mapping[str, Scalar | None]  # default values; None where one must be given
    bounded: bool
    ranking_only: bool
    summary: str
    label: str
    order: float = LAST  # its place in tables
    supervised: bool = False
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
    learned: Learned | None = field(default=None, repr=False)
    base_rate: float | None = None
    rate_of: RatedSum | None = field(default=None, repr=False)
    never_rises: bool = False
    sums: Sums | None = field(default=None, repr=False)

    @cached_property
    def needs_trace(self) -> bool:
        """Of an estimator that names no evidence either, a trace is all that is left."""
        return not self.evidence or len(self.evidence) < len(self.needs)

    @cached_property
    def needs_exact(self) -> bool:
        """Whether bounds on divergences leave it without a value."""
        return any(need in exact_only() for need in self.needs)

    @cached_property
    def counts(self) -> bool:
        """Whether it reads divergences, so that it depends on which tokens can be divergent."""
        return any(d.column in self.needs for d in DIVERGENCES)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The per-token columns it reads."""
        return tuple(need for need in self.needs if is_column(need))

    @cached_property
    def evidence(self) -> tuple[str, ...]:
        """The kinds of evidence it is given, in order."""
        return tuple(need for need in self.needs if not is_column(need))

    def only_ranks(self, params: Mapping[str, Scalar]) -> bool:
        """Whether values with these parameters are no probabilities; a map makes them such."""
        return self.ranking_only and "map" not in params

    def check_parameter(self, name: str, value: Scalar) -> None:
        check_parameter(name, value, self.ranges.get(name))


ESTIMATORS: Registry[Estimator] = Registry(
    "estimator", group="divtok.estimators", home="divtok.score.estimators"
)


def is_column(need: str) -> bool:
    """Whether it is a column of a trace; otherwise it names a kind of evidence."""
    return need in PER_TOKEN_FIELDS or any(d.column == need for d in DIVERGENCES)


def exact_only() -> set[str]:
    """The columns that bounds on divergences say nothing about."""
    unbounded = {d.column for d in DIVERGENCES if not d.bounded}
    return {"entropy_p", "entropy_q"} | unbounded


def estimator(
    name: str,
    *,
    needs: tuple[str, ...],
    label: str | None = None,
    order: float = LAST,
    bounded: bool = True,
    ranking_only: bool = False,
    supervised: bool = False,
    ranges: Mapping[str, Range] | None = None,
    learned: Learned | None = None,
    base_rate: float | None = None,
    rate_of: RatedSum | None = None,
    never_rises: bool = False,
    sums: Sums | None = None,
) -> Callable[[EstimatorFunction], EstimatorFunction]:
    """Register a function as an estimator.

    Its keyword-only arguments are its parameters: score.NAME=VALUE sets one for every estimator
    that has it, score.ESTIMATOR.NAME=VALUE for this one alone. `ranges` are their legal values.
    With `rate_of`, a function of the trace and the other parameters, the estimator is
    exp(-rate * rate_of(...)), and `divtok fit --what rate` fits its rate. With `never_rises` a
    response is given up while it is written, once its value is below a policy's threshold. With
    `sums` its values are computed for all prefixes at once, and the report says how early it tells.

    Example:
        >>> import divtok
        >>> @divtok.estimator("worst_token", needs=("logprob_p",), ranges={"power": (0, 10)})
        ... def worst_token(trace, *, power=1.0):
        ...     "Probability of the least likely token, to a power."
        ...     return float(2.718281828 ** (power * trace.logprob_p.min()))
        >>> pair = divtok.load_pair("tiny")
        >>> rows = [("What is 1 + 1?", "It is 2.")]
        >>> found = divtok.confidences(rows, pair=pair, estimator="worst_token", power=2)
        >>> 0 < found.values[0] < 1
        True
    """

    def register(function: EstimatorFunction) -> EstimatorFunction:
        parameters = {
            p.name: None if p.default is inspect.Parameter.empty else p.default
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        summary = (inspect.getdoc(function) or "").split("\n", 1)[0]
        spec = Estimator(
            name,
            function,
            needs,
            parameters,
            bounded=bounded and not ranking_only,
            ranking_only=ranking_only,
            summary=summary,
            label=label or name,
            order=order,
            supervised=supervised,
            ranges=ranges or {},
            learned=learned,
            base_rate=base_rate,
            rate_of=rate_of,
            never_rises=never_rises,
            sums=sums,
        )
        ESTIMATORS.add(name, spec)
        return function

    return register


def in_order(specs: Iterable[Estimator]) -> list[Estimator]:
    """As tables show them; those of the same place by name."""
    return sorted(specs, key=lambda spec: (spec.order, spec.name))


def check_names(spec: Estimator, given: Iterable[str]) -> None:
    """Refuse a parameter that the estimator does not have."""
    for name in given:
        if name not in spec.parameters:
            raise UsageError(
                f"The estimator '{spec.name}' has no parameter '{name}'.",
                next_step=f"It takes: {', '.join(spec.parameters) or 'none'}.",
            )


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
        spec.check_parameter(name, value)
        bound[name] = value
    if bound.keys() >= {"a", "b"} and float(bound["b"]) > float(bound["a"]):
        raise UsageError(
            f"b ({bound['b']}) is above a ({bound['a']}): more divergence would mean more trust.",
            next_step="Give b a value up to a.",
        )
    return bound


def check_parameter(name: str, value: Scalar, given: Range | None = None) -> None:
    """Refuse a number that is not finite, and one outside its range."""
    number = None if isinstance(value, bool | str) else value
    limits = given or SHARED_RANGES.get(name)
    if limits is None:
        if number is not None and not math.isfinite(number):
            raise UsageError(f"{name} must be finite, not {value}.", next_step="Correct its value.")
        return
    low, high = limits
    if number is None or not math.isfinite(number) or not low <= number <= high:
        bounds = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise UsageError(f"{name} must be {bounds}, not {value}.", next_step="Correct its value.")
