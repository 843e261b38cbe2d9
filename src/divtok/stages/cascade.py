"""Two generators' responses to the same problems -> what a cascade of both would give.

Reads stored tables only. The smaller one's responses must be scored; the larger one's need no more
than grades.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.cascade import Cascade, Curve, Marked, curve, oracle
from divtok.decide.cost import TokenCost
from divtok.decide.deferral import Answers, choices
from divtok.decide.offer import how_scored
from divtok.decide.policy import Policy, check_policy
from divtok.errors import DataError, UsageError, did_you_mean
from divtok.evaluate.metrics import Floats
from divtok.evaluate.protocol import no_accuracy
from divtok.evaluate.scored_group import ScoredGroup
from divtok.records import Verdict
from divtok.stages.evaluate import Results, graded, groups_and_left_out
from divtok.stages.policies import find_policy
from divtok.stages.token_costs import active_parameters, reading_models, token_cost
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run

_MILLION = 1e6


class Stored(NamedTuple):
    """A run with its config."""

    run: Run
    config: RunConfig


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens: written by the smaller generator, by the larger, and read."""

    smaller: float
    larger: float
    read: float

    @classmethod
    def given(cls, written: tuple[float, float] | None, read: float | None) -> Prices | None:
        """Reading is free where it has no price; a price for reading alone says nothing."""
        if written is None and read is not None:
            raise UsageError(
                "There is a price for reading, and none for what is written.",
                next_step="Give both, as in: --prices 0.2 1.5 --read-price 0.05",
            )
        return None if written is None else cls(*written, read=read or 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One generator's graded responses by benchmark, and how many have no grade."""

    config: RunConfig
    generator: str
    groups: Sequence[ScoredGroup]
    ungraded: int = 0


def cascade(
    smaller: Stored,
    larger: Stored,
    *,
    small: str | None = None,
    large: str | None = None,
    estimators: Sequence[str] = (),
    prices: Prices | None = None,
    within: float = 0.0,
    policy: Path | None = None,
) -> Cascade:
    """What each threshold gives; `small` and `large` name generators where a run has several."""
    if not 0 <= within <= 1:
        raise UsageError(
            f"within is {within:g}, and it is a share of answers.", next_step="Give 0 to 1."
        )
    same = smaller.run.path.resolve() == larger.run.path.resolve()
    small, large = _named_generators(smaller, larger, small, large, same=same)
    if same and small == large:
        raise UsageError(
            f"Both sides of the cascade are {small} of {smaller.run.path}.",
            next_step="Name another generator (--small, --large), or another run.",
        )
    if not same:
        _check_questions(smaller.run, larger.run)
    return cascade_of(
        _scored_side(smaller, small),
        _answered_side(larger, large),
        estimators=estimators,
        prices=prices,
        within=within,
        policy=policy,
    )


def cascade_in(config: RunConfig, found: Results) -> Cascade | None:
    """From a run's smallest generator to its largest, where sizes are known and problems shared."""
    generators = list(dict.fromkeys(group.generator for group in found.groups))
    pair = _by_size(config, generators)
    if pair is None:
        return None
    sides = [Side(config, name, [g for g in found.groups if g.generator == name]) for name in pair]
    if not any(group.columns for group in sides[0].groups):
        return None
    try:
        return cascade_of(*sides)
    except DataError:  # what the verb would refuse, a report goes without
        return None


def cascade_of(
    smaller: Side,
    larger: Side,
    *,
    estimators: Sequence[str] = (),
    prices: Prices | None = None,
    within: float = 0.0,
    policy: Path | None = None,
) -> Cascade:
    for side in (smaller, larger):
        reason = _why_no_accuracy(side)
        if reason is not None:
            raise DataError(
                f"{side.generator} has {reason}.",
                next_step="Grade its responses so that their answers are found: divtok grade RUN",
            )
    group_with = {c.estimator: g for g in smaller.groups for c in g.columns}
    asked = None if policy is None else find_policy(str(policy))
    names = _chosen(group_with, estimators, asked)
    if asked is not None:
        name = asked.scored.estimator if asked.scored.estimator in names else names[0]
        check_policy(asked, how_scored(group_with[name], name))
    costs = _Costs(smaller, larger, names, prices)
    (ours, unknown), (theirs, also_unknown) = map(_answers, (smaller.groups, larger.groups))
    joined = choices(
        ours,
        theirs,
        (costs.smaller, costs.larger),
        resamples=smaller.config.evaluate.resamples,
    )
    values = {name: _values(smaller.groups, name)[joined.rows] for name in names}
    curves = {
        name: curve(joined, values[name], costs.reading[name], within=within) for name in names
    }
    return Cascade(
        smaller=smaller.generator,
        larger=larger.generator,
        choices=joined,
        curves=curves,
        oracle=oracle(joined),
        within=within,
        ungraded=smaller.ungraded + larger.ungraded + unknown + also_unknown,
        marked=None if asked is None else _marked(asked, curves[asked.scored.estimator]),
    )


class _Costs:
    """The costs of a token, all in one unit: in tokens where any model's size is not known."""

    def __init__(
        self, smaller: Side, larger: Side, estimators: Sequence[str], prices: Prices | None
    ) -> None:
        config, name = smaller.config, smaller.generator
        if prices is not None:
            self.smaller = TokenCost(prices.smaller / _MILLION, prices.read / _MILLION, "price")
            self.larger = TokenCost(prices.larger / _MILLION, 0.0, "price")
            reads = {e: bool(reading_models(config, name, e)) for e in estimators}
            self.reading = {e: self.smaller.read if reads[e] else 0.0 for e in estimators}
            return
        of_each = {e: token_cost(config, name, e) for e in estimators}
        self.larger = token_cost(larger.config, larger.generator)
        self.smaller = token_cost(config, name)
        if any(cost.unit == "tokens" for cost in (self.smaller, self.larger, *of_each.values())):
            self.smaller = self.larger = TokenCost(1.0, 0.0, "tokens")
            self.reading = dict.fromkeys(estimators, 0.0)
        else:
            self.reading = {e: cost.read for e, cost in of_each.items()}


def _named_generators(
    smaller: Stored, larger: Stored, small: str | None, large: str | None, *, same: bool
) -> tuple[str, str]:
    if same and small is None and large is None:
        pair = _by_size(smaller.config, _generators(smaller.run))
        if pair is not None:
            return pair
    return _named(smaller.run, small, "--small"), _named(larger.run, large, "--large")


def _named(run: Run, given: str | None, option: str) -> str:
    known = _generators(run)
    if given is None and len(known) == 1:
        return known[0]
    if given is None:
        raise UsageError(
            f"The run {run.path} has several generators: {', '.join(known)}."
            if known
            else f"The run {run.path} has no responses.",
            next_step=f"Name one of them: {option} {known[0]}" if known else "Give another run.",
        )
    if given not in known:
        raise UsageError(
            f"The run {run.path} has no responses of '{given}'.",
            next_step=did_you_mean(given, known),
        )
    return given


def _generators(run: Run) -> list[str]:
    return list(dict.fromkeys(name for (name,) in rows_of(run.trajectories, ("generator",))))


def _by_size(config: RunConfig, generators: Sequence[str]) -> tuple[str, str] | None:
    """The smallest and the largest; None where a size is not known or all are alike."""
    sizes = {name: active_parameters(config, name) for name in generators}
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(known) < len(sizes) or len(set(known.values())) < 2:
        return None
    ordered = sorted(known, key=lambda name: known[name])
    return ordered[0], ordered[-1]


def _check_questions(smaller: Run, larger: Run) -> None:
    """Refuse two runs in which one name stands for different problems."""
    columns = ("benchmark", "id", "question")
    ours = {(b, name): question for b, name, question in rows_of(smaller.problems, columns)}
    for benchmark, name, question in rows_of(larger.problems, columns):
        if ours.get((benchmark, name), question) != question:
            raise DataError(
                f"The problem {name} of {benchmark} is another question in {smaller.path} than in "
                f"{larger.path}.",
                next_step="Give runs of the same problems.",
            )


def _scored_side(stored: Stored, generator: str) -> Side:
    """Of the generator whose confidences decide."""
    groups, left_out = groups_and_left_out(*stored)
    return Side(
        stored.config,
        generator,
        [g for g in groups if g.generator == generator],
        sum(
            rows.failed + rows.gold_missing + rows.verdict_missing
            for rows in left_out
            if rows.generator == generator
        ),
    )


def _answered_side(stored: Stored, generator: str) -> Side:
    """Of the generator that is asked next: its responses need grades, but no confidences."""
    run, config = stored
    every = [r for r in stored_responses(run).values() if r.generator == generator]
    grades = graded(run, [r.key for r in every])
    lengths: dict[str, int] = dict(rows_of(run.counts, ("key", "length")))
    members: dict[str, list[Response]] = {}
    for response in every:
        if not response.failed and not grades[response.key].missing:
            members.setdefault(response.benchmark, []).append(response)
    groups = [
        ScoredGroup(
            benchmark=benchmark,
            generator=generator,
            problem_id=[r.problem_id for r in rows],
            verdict=[grades[r.key].verdict for r in rows],
            truncated=[r.truncated for r in rows],
            length=[lengths.get(r.key, r.length) for r in rows],
            count=[None] * len(rows),
            columns=[],
        )
        for benchmark, rows in members.items()
    ]
    return Side(config, generator, groups, len(every) - sum(len(g.verdict) for g in groups))


def _answers(groups: Sequence[ScoredGroup]) -> tuple[Answers, int]:
    """The graded responses, and how many there are beside them whose grade is undetermined."""
    kept = [(g, row) for g in groups for row in range(len(g.verdict)) if _decided(g, row)]
    answers = Answers(
        problem=[(g.benchmark, g.problem_id[row]) for g, row in kept],
        right=np.array([g.verdict[row] == Verdict.CORRECT for g, row in kept], dtype=bool),
        tokens=np.array([g.length[row] for g, row in kept], dtype=np.float64),
    )
    return answers, sum(len(g.verdict) for g in groups) - len(kept)


def _values(groups: Sequence[ScoredGroup], estimator: str) -> Floats:
    """[N] what the confidences of the same rows are at least, as a policy takes them.

    NaN where there is none.
    """
    found: list[Floats] = []
    for group in groups:
        column = next((c for c in group.columns if c.estimator == estimator), None)
        n = len(group.verdict)
        values = np.full(n, np.nan) if column is None else column.certain()
        found.append(values[[_decided(group, row) for row in range(n)]])
    return np.concatenate(found)


def _decided(group: ScoredGroup, row: int) -> bool:
    return group.verdict[row] != Verdict.UNDETERMINED


def _chosen(columns: Iterable[str], estimators: Sequence[str], policy: Policy | None) -> list[str]:
    """Those that are named, or all; with that of the policy where none is named."""
    known = list(columns)
    asked = [] if policy is None or estimators else [policy.scored.estimator]
    for name in [*estimators, *asked]:
        if name not in known:
            raise UsageError(
                f"The smaller generator's responses have no confidences of '{name}'.",
                next_step=did_you_mean(name, known),
            )
    return list(dict.fromkeys(estimators)) or known


def _marked(policy: Policy, curve: Curve) -> Marked:
    return Marked(
        policy.scored.estimator, policy.threshold, curve.at(policy.threshold), policy.promise
    )


def _why_no_accuracy(side: Side) -> str | None:
    reasons = (no_accuracy(g.verdict, g.truncated) for g in side.groups)
    return next((reason for reason in reasons if reason is not None), None)
