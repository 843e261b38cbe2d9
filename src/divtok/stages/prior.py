"""Stored confidences stated for a base rate: of one generator on one benchmark together.

The base rate is given, or is what the agreement of samples suggests; no grade is looked at. What no
shift can reach stays as the estimator gives it, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from divtok.config.run import AGREEMENT, RunConfig
from divtok.evaluate.votes import agreement
from divtok.progress import say
from divtok.records import Confidence, Reason
from divtok.score.prior import shift_to_mean, shifted
from divtok.score.registry import Estimator
from divtok.stages.votes import answer_numbers, votes_of
from divtok.store.responses import Group, Response
from divtok.store.run import Run

NOT_IN_RANGE = "not_in_range"  # a kind of reason


@dataclass(frozen=True, slots=True)
class Stated:
    """The base rate of a group and the shift to it; `reason` says why there is none."""

    prior: float | None = None
    shift: float | None = None
    reason: Reason | None = None


@dataclass(slots=True)
class Values:
    """The confidences of responses with an answer, by estimator and group, as they pass.

    Of the `chosen` estimators, those values that are probabilities.
    """

    chosen: Mapping[str, Estimator]
    responses: Mapping[str, Response]
    answered: frozenset[str]
    found: dict[tuple[str, Group], list[float]] = field(
        default_factory=dict[tuple[str, Group], list[float]]
    )

    def add(self, confidences: Iterable[Confidence]) -> None:
        for one in confidences:
            spec = self.chosen.get(one.estimator)
            if spec is None or spec.only_ranks(one.params):
                continue
            if one.value is not None and one.key in self.answered:
                group = self.responses[one.key].group
                self.found.setdefault((one.estimator, group), []).append(one.value)


def state_for_prior(
    run: Run, config: RunConfig, chosen: Sequence[Estimator], responses: Mapping[str, Response]
) -> None:
    """Shift the run's stored confidences to `score.prior`, where it asks for that."""
    prior = config.score.prior
    if prior is None:
        return
    numbers = answer_numbers(run, config, responses)
    answered = frozenset(key for key, number in numbers.items() if number >= 0)
    values = Values({spec.name: spec for spec in chosen}, responses, answered)
    for part in run.confidences.batches():
        values.add(part)
    rates = _rates(prior, responses, numbers)
    stated = {
        (name, group): _stated(rates[group], given) for (name, group), given in values.found.items()
    }
    run.confidences.replace_with(_moved(run, responses, stated))
    _say(prior, rates, stated)


def _moved(
    run: Run, responses: Mapping[str, Response], stated: Mapping[tuple[str, Group], Stated]
) -> Iterator[list[Confidence]]:
    for part in run.confidences.batches():
        of = [stated.get((one.estimator, responses[one.key].group), Stated()) for one in part]
        shifts = [one.shift for one in of]
        value, low, high = (
            _shifted([getattr(one, end) for one in part], shifts)
            for end in ("value", "low", "high")
        )
        rows = zip(part, of, value, low, high, strict=True)
        yield [
            one
            if one.value is None or to.shift is None
            else replace(one, value=v, low=lo, high=hi, prior=to.prior)
            for one, to, v, lo, hi in rows
        ]


def _shifted(values: Sequence[float | None], shifts: Sequence[float | None]) -> list[float | None]:
    """Each value moved by its shift; None where either is missing."""
    there = [
        (place, value, shift)
        for place, (value, shift) in enumerate(zip(values, shifts, strict=True))
        if value is not None and shift is not None
    ]
    found: list[float | None] = [None] * len(values)
    if there:
        places, given, by = zip(*there, strict=True)
        for place, value in zip(places, shifted(given, by).tolist(), strict=True):
            found[place] = value
    return found


def _rates(
    prior: float | str, responses: Mapping[str, Response], numbers: Mapping[str, int]
) -> dict[Group, Stated]:
    """The base rate of each group, among its responses with an answer."""
    members: dict[Group, list[Response]] = {}
    for response in responses.values():
        if not response.failed:
            members.setdefault(response.group, []).append(response)
    rates: dict[Group, Stated] = {}
    for group, rows in members.items():
        if prior != AGREEMENT:
            rates[group] = Stated(float(prior))
            continue
        votes = votes_of(rows, numbers)
        found = agreement(votes.problem, votes.answer)
        why = found.reason or Reason("no_answer", "no response holds an answer")
        rate = found.of_answered
        rates[group] = Stated(rate, reason=why if rate is None else None)
    return rates


def _stated(rate: Stated, values: Sequence[float]) -> Stated:
    if rate.prior is None:
        return rate
    given = np.array(values)
    if not ((given >= 0) & (given <= 1)).all():
        return Stated(reason=Reason(NOT_IN_RANGE, "it has values outside 0 to 1"))
    shift = shift_to_mean(given, rate.prior)
    return Stated(rate.prior, shift.value, shift.reason)


def _say(
    prior: float | str,
    rates: Mapping[Group, Stated],
    stated: Mapping[tuple[str, Group], Stated],
) -> None:
    known = [rate.prior for rate in rates.values() if rate.prior is not None]
    if known:
        ends = f"{100 * min(known):.1f}"
        if max(known) > min(known):
            ends += f" to {100 * max(known):.1f}"
        say(f"score: confidences are stated for {ends} % right answers (score.prior={prior})")
    why: dict[str, list[str]] = {}
    for (name, (benchmark, generator)), one in stated.items():
        if one.reason is not None:
            why.setdefault(one.reason, []).append(f"{name}, {generator} on {benchmark}")
    for reason, names in why.items():
        say(f"score: not shifted: {reason} ({'; '.join(names)})")
