"""What was fitted for a pair of models, and what it does to a confidence.

A theta or a rate is a parameter of its estimator. A map turns an estimator's values into
probabilities of being right: it never falls, and never gives 0 or 1. Knows numbers and names; how
they are fitted is in `evaluate`, their file in `fit_file`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError, UsageError, did_you_mean
from divtok.records import Confidence, CountedTokens, Interval, Scalar
from divtok.score.prior import shifted

What = Literal["theta", "rate", "isotonic", "logistic"]
Target = Literal["grades", "agreement"]
WHATS: tuple[What, ...] = get_args(What)
TARGETS: tuple[Target, ...] = get_args(Target)

# What is a parameter, as far as it is no map, and the estimator that it is fitted for by default.
PARAMETERS: Mapping[What, str] = {"theta": "dtc_lin", "rate": "dtc_weighted"}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Isotonic:
    """Straight lines between knots (value, probability), and level beyond the first and the last"""

    knots: tuple[tuple[float, float], ...]
    kind: Literal["isotonic"] = "isotonic"

    def __post_init__(self) -> None:
        values = [value for value, _ in self.knots]
        shares = [share for _, share in self.knots]
        finite = all(math.isfinite(value) for value in values)
        if not values or not finite or any(b <= a for a, b in pairwise(values)):
            raise DataError("The knots of a map must be at one or more rising values.")
        falls = any(b < a for a, b in pairwise(shares))
        if falls or not all(0 < share < 1 for share in shares):
            raise DataError("The probabilities of a map must not fall, and lie within 0 and 1.")

    def __call__(self, values: npt.ArrayLike) -> Floats:
        at, shares = np.array(self.knots).T
        return np.interp(np.asarray(values, dtype=np.float64), at, shares)

    def shifted(self, by: float) -> Isotonic:
        """The same with all log-odds moved; between knots the lines stay straight."""
        moved = expit(logit(np.array([share for _, share in self.knots])) + by)
        values = (value for value, _ in self.knots)
        return Isotonic(tuple(zip(values, map(float, moved), strict=True)))


@dataclass(frozen=True, slots=True)
class Logistic:
    """The log-odds of a confidence, times `slope`, plus `intercept`.

    A confidence nearer to 0 or 1 than `edge` is taken as that near: its log-odds may be infinite.
    What comes out is never nearer either: a steep map would say that it is certain.
    """

    slope: float
    intercept: float
    edge: float = 1e-6
    kind: Literal["logistic"] = "logistic"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and self.slope > 0 and math.isfinite(self.intercept)):
            raise DataError("A logistic map must be finite, and its slope above 0.")
        if not 0 < self.edge < 0.5:
            raise DataError("The edge of a logistic map must be above 0 and below 0.5.")

    def __call__(self, values: npt.ArrayLike) -> Floats:
        odds = self.slope * edged_logit(values, self.edge) + self.intercept
        nearest = float(logit(np.array([1 - self.edge]))[0])
        return expit(np.clip(odds, -nearest, nearest))

    def shifted(self, by: float) -> Logistic:
        """The same with all log-odds moved."""
        return replace(self, intercept=self.intercept + by)


ConfidenceMap: TypeAlias = Isotonic | Logistic


@dataclass(frozen=True, slots=True)
class Fitted:
    """A theta, a rate or a map, and all that says where it may be used.

    `params` are those of the estimator, the fitted one among them. `prior` is how often the
    responses it was fitted on are right, and `prior_from` whose word that is: their grades, or the
    agreement of samples, which the mean of a map's values only comes near. `made_of` names the run
    and the content of its tables, where it was one. `identity` tells it from others; it is None
    until it has a file.
    """

    what: What
    estimator: str
    params: Mapping[str, Scalar]
    tokens: CountedTokens
    pairs: tuple[tuple[str, str], ...]
    generators: tuple[str, ...]
    target: Target
    prior: float
    prior_from: Target
    responses: int
    problems: int
    map: ConfidenceMap | None = None
    interval: Interval | None = None
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()
    made_of: Mapping[str, Any] = field(default_factory=dict[str, Any])
    divtok: str = ""
    identity: str | None = None

    def __post_init__(self) -> None:
        one_of("what", self.what, WHATS)
        one_of("target", self.target, TARGETS)
        if (self.map is None) != (self.what in PARAMETERS):
            raise DataError(f"A fit of '{self.what}' has " + ("no map." if self.map else "a map."))
        if self.map is not None and self.map.kind != self.what:
            raise DataError(f"A fit of '{self.what}' has a map of the kind '{self.map.kind}'.")
        if self.map is None and self.what not in self.params:
            raise DataError(f"A fit of '{self.what}' does not say it.")
        if not 0 < self.prior < 1:
            raise DataError(f"The prior of a fit must lie within 0 and 1, not at {self.prior}.")

    @property
    def name(self) -> str:
        """As its file is called."""
        return f"{self.estimator}-{self.what}" + (
            "" if self.target == "grades" else f"-{self.target}"
        )

    @property
    def value(self) -> float:
        """The theta or the rate that was fitted."""
        return float(self.params[self.what])

    def described(self) -> str:
        """What it is of, for messages."""
        kind = f"{self.what} map" if self.map is not None else f"{self.what} {self.value:g}"
        return f"the {kind} of {self.estimator}"

    @property
    def subject(self) -> str:
        """The same at the beginning of a sentence."""
        return "T" + self.described()[1:]


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{name} cannot be {value!r}.", next_step=did_you_mean(value, known))


def applied(fitted: Fitted, confidence: Confidence) -> Confidence:
    """A confidence with the map over it, and its bounds likewise; it says so in its parameters.

    It is then stated for the share of right answers that the map was fitted on. A confidence
    without a value keeps its reason.
    """
    if fitted.map is None:
        return confidence
    values = (confidence.value, confidence.low, confidence.high)
    value, low, high = (None if v is None else float(fitted.map(v)) for v in values)
    params = mapped_params(fitted, confidence.params)
    prior = None if value is None else fitted.prior
    return replace(confidence, params=params, value=value, low=low, high=high, prior=prior)


def stated_for(confidence: Confidence, prior: float) -> Confidence:
    """A single confidence for another share of right answers than the one it is stated for.

    Its log-odds are moved by those of the one share less those of the other.
    """
    if confidence.value is None or confidence.prior is None:
        return confidence
    odds = logit(np.array([prior, confidence.prior]))
    by = float(odds[0] - odds[1])
    values = (confidence.value, confidence.low, confidence.high)
    value, low, high = (None if v is None else float(shifted(v, by)[0]) for v in values)
    return replace(confidence, value=value, low=low, high=high, prior=prior)


def mapped_params(fitted: Fitted, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What a mapped confidence is said to be made with."""
    said: dict[str, Scalar] = {"map": fitted.what}
    return {**params, **said, **({} if fitted.identity is None else {"map_of": fitted.identity})}


def how_stated(params: Mapping[str, Scalar], prior: float | None) -> str:
    """Behind a confidence, where a map is over it or it is stated for a share of right answers."""
    said = [f"{params['map']} map"] if "map" in params else []
    said += [] if prior is None else [f"stated for {100 * prior:.3g} % right"]
    return f" ({', '.join(said)})" if said else ""


def check_parameters(
    fitted: Fitted, params: Mapping[str, Scalar], tokens: CountedTokens, *, how: str
) -> None:
    """Refuse it for other parameters than `params`, those of its estimator as they are here.

    `how` says how it is left out.
    """
    differ = [
        name
        for name in dict.fromkeys([*fitted.params, *params])
        if fitted.params.get(name) != params.get(name)
    ]
    if fitted.what in differ:
        raise UsageError(
            f"{fitted.subject} was fitted, but here it is {_said(params.get(fitted.what))}.",
            next_step=f"Give no other {fitted.what}, or {how}",
        )
    wrong = [
        f"{name} {_said(fitted.params.get(name))}, here it is {_said(params.get(name))}"
        for name in differ
    ]
    if fitted.tokens != tokens:
        wrong.append(f"the tokens '{fitted.tokens}', here they are '{tokens}'")
    if wrong:
        raise UsageError(
            f"{fitted.subject} was fitted with {'; '.join(wrong)}.",
            next_step=f"Score with what it was fitted with, fit again, or {how}",
        )


def check_pair(fitted: Fitted, pair: tuple[str, str]) -> None:
    if pair in fitted.pairs:
        return
    known = "; ".join(f"p {p}, q {q}" for p, q in fitted.pairs)
    step = "Fit one for this pair with 'divtok fit'"
    if fitted.map is None:
        step += f", or give the number alone: {by_hand(fitted)} in a run"
    raise UsageError(
        f"{fitted.subject} was fitted for another pair ({known}); here it is "
        f"p {pair[0]}, q {pair[1]}.",
        next_step=f"{step}.",
    )


def by_hand(fitted: Fitted) -> str:
    """The override that sets its theta or rate without it, for any pair."""
    given = f"{fitted.estimator}.{fitted.what}" if fitted.what != "theta" else "theta"
    return f"score.{given}={fitted.value:g}"


def _said(value: Scalar | None) -> str:
    return "not given" if value is None else str(value)


def edged_logit(values: npt.ArrayLike, edge: float) -> Floats:
    """Log-odds of confidences, those nearer to 0 or 1 than `edge` as of ones that near."""
    return logit(np.clip(np.asarray(values, dtype=np.float64), edge, 1 - edge))


def logit(share: Floats) -> Floats:
    return np.log(share) - np.log1p(-share)


def expit(odds: Floats) -> Floats:
    """The share of log-odds, without an overflow at either end."""
    small = np.exp(-np.abs(odds))
    return np.where(odds >= 0, 1 / (1 + small), small / (1 + small))
