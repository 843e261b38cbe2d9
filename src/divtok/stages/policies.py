"""Policies of a run: where their files are, and what one says of a run's responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.likeness import unlike
from divtok.decide.policy import (
    Decision,
    HowScored,
    Policy,
    certain,
    check_pair_of,
    check_policy,
    check_settled,
    decision_of,
)
from divtok.decide.policy_file import load_policy
from divtok.errors import UsageError, command
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.share_interval import share_interval
from divtok.records import Confidence, Interval, Reason, Scalar, Verdict
from divtok.report.text import slug
from divtok.stages.evaluate import graded
from divtok.stages.kept_files import kept_file
from divtok.store.columns import reason_of
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run

ANOTHER_GENERATOR = "another_generator"  # a kind of reason


@dataclass(frozen=True, slots=True)
class Decided:
    """What a policy says of one response of a run. `correct` is None where that is not known."""

    response: Response
    confidence: Confidence
    decision: Decision
    correct: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Applied:
    """What a policy says of a run's responses, in the order of the run.

    `warning` says why its promise may not hold here; None where nothing speaks against it.
    `wrong` is the share of wrong ones among the accepted responses whose grade is known, `graded`
    how many those are; its interval is over whole problems.
    """

    policy: Policy
    rows: tuple[Decided, ...]
    warning: Reason | None
    graded: int
    wrong: float | None
    wrong_interval: Interval | None

    @property
    def actions(self) -> Mapping[str, int]:
        """How many responses each action is for."""
        return Counter(row.decision.action for row in self.rows)


def policy_path(run: Run, policy: Policy) -> Path:
    promise = f"risk-{100 * policy.risk:g}-delta-{100 * policy.delta:g}"
    name = f"{policy.scored.estimator}-{slug(policy.generator)}-{promise}"
    return run.policies / f"{name}.json"


def find_policy(given: str) -> Policy:
    """The policy of a file, or the one that a run holds, by its folder or name."""
    return load_policy(
        kept_file(
            given,
            lambda run: run.policies,
            nothing=f"No policy was made on the run {given} yet.",
            several=f"The run {given} has {{}} policies.",
            make=f"Make one: {command('decide', given, '--risk', '0.05')}",
        )
    )


def apply_policy(run: Run, config: RunConfig, policy: Policy) -> Applied:
    """Its decision on every response of the generator that it was made on.

    Where the run has none of that generator: on all that its pair has read, with a warning. Refused
    for another pair.
    """
    pairs = config.scored_pairs()
    check_pair_of(policy, *dict.fromkeys(pairs.values()))
    read = [generator for generator, pair in pairs.items() if pair == policy.scored.pair]
    generators = [policy.generator] if policy.generator in read else read
    verdicts = _verdicts(run)
    responses = stored_responses(run)
    rows = tuple(
        Decided(
            responses[found.key],
            found,
            decision_of(policy, found),
            _right(verdicts.get(found.key)),
        )
        for found in _confidences(run, config, policy, responses, generators)
    )
    if not rows:
        raise UsageError(
            f"The run {run.path} was not scored by '{policy.scored.estimator}', which the policy "
            "is for.",
            next_step="Score it: "
            f"{command('score', run.path, f'score.estimators=[{policy.scored.estimator}]')}",
        )
    values = [low for row in rows if (low := certain(row.confidence)) is not None]
    problems = problem_numbers([f"{r.response.benchmark} {r.response.problem_id}" for r in rows])
    accepted = np.array([r.decision.accepted and r.correct is not None for r in rows], dtype=bool)
    wrong = np.array([r.correct is False for r in rows], dtype=bool)[accepted]
    return Applied(
        policy,
        rows,
        _another(policy, generators) or unlike(policy, values, len(np.unique(problems))),
        graded=len(wrong),
        wrong=float(wrong.mean()) if len(wrong) else None,
        wrong_interval=share_interval(wrong, problems[accepted]) if len(wrong) else None,
    )


def _confidences(
    run: Run,
    config: RunConfig,
    policy: Policy,
    responses: Mapping[str, Response],
    generators: Collection[str],
) -> Iterator[Confidence]:
    """Those of the policy's estimator and pair, each held against what the policy was made for."""
    checked: set[tuple[str, float | None]] = set()
    columns = ("key", "estimator", "params", "value", "low", "high", "prior")
    reasons = ("reason", "reason_kind")
    for key, name, params, value, low, high, prior, *why in rows_of(
        run.confidences, columns + reasons
    ):
        if name != policy.scored.estimator or responses[key].generator not in generators:
            continue
        given: dict[str, Scalar] = json.loads(params)
        if value is not None and (params, prior) not in checked:
            stated = prior is not None and config.score.prior is not None
            check_settled(name, by_run=stated)
            check_policy(policy, _how(config, policy, given, prior))
            checked.add((params, prior))
        yield Confidence(key, name, given, value, reason_of(*why), low, high, prior)


def _how(
    config: RunConfig,
    policy: Policy,
    params: Mapping[str, Scalar],
    prior: float | None,
) -> HowScored:
    own = {name: value for name, value in params.items() if name != "tokens"}
    scored = policy.scored
    return HowScored(scored.estimator, own, config.score.tokens, scored.pair, prior)


def _another(policy: Policy, generators: Sequence[str]) -> Reason | None:
    if not policy.generator or policy.generator in generators:
        return None
    return Reason(
        ANOTHER_GENERATOR,
        f"these are answers of {', '.join(generators)}, and the policy was made on those of "
        f"{policy.generator}: its promise may not hold",
    )


def _verdicts(run: Run) -> dict[str, str]:
    """Those that there are: of responses with a gold answer, or another tool's word."""
    return {key: grade.verdict for key, grade in graded(run, ()).items() if not grade.missing}


def _right(verdict: str | None) -> bool | None:
    """As policies are made: a response without an answer is none that may be accepted."""
    return None if verdict in (None, Verdict.UNDETERMINED) else verdict == Verdict.CORRECT
