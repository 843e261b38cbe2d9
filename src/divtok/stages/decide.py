"""confidences and grades -> policies: from which confidence on an answer may be accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from divtok.config.made_with import divtok_version
from divtok.config.run import RunConfig
from divtok.decide.offer import Offer, answers_of, how_scored, offer_of, policy_of
from divtok.decide.policy import Below, HowScored, Policy, check_below
from divtok.decide.policy_file import save_policy
from divtok.errors import DataError, StoreError, UsageError, command
from divtok.evaluate.scored_group import ScoredGroup, by_generator
from divtok.progress import say
from divtok.report.fitted_notes import fitted_here
from divtok.score.prior import same_share
from divtok.stages.evaluate import groups_of
from divtok.stages.facts import Facts
from divtok.stages.fits import LEAVE_OUT, stored_fits
from divtok.stages.made_of import made_of
from divtok.stages.policies import policy_path
from divtok.stages.show import usual_estimator
from divtok.store.run import Run


def decide(
    run: Run,
    config: RunConfig,
    *,
    risk: float,
    delta: float = 0.1,
    estimator: str | None = None,
    generator: str | None = None,
    below: Below = "abstain",
    to: str | None = None,
    seed: int = 0,
) -> dict[str, Offer]:
    """generator -> what can be promised of it, over all benchmarks of the run; writes nothing.

    A policy is for one pair, so each generator gets one of its own.
    """
    check_below(below, to)
    name = usual_estimator(run, Facts(run, config), estimator)
    groups = by_generator(groups_of(run, config))
    if generator is not None and generator not in groups:
        raise UsageError(
            f"The run {run.path} has no graded response of '{generator}'.",
            next_step=f"It has those of: {', '.join(groups)}.",
        )
    chosen = {g: of for g, of in groups.items() if generator in (None, g)}
    found: dict[str, Offer] = {}
    without: list[str] = []
    for writer, of in chosen.items():
        answers = answers_of(of, name)
        if np.isnan(answers.confidence).all():
            without.append(writer)
            continue
        scored = _how_scored(run, of, name)
        offer = offer_of(answers, name, risk=risk, delta=delta, seed=seed)
        policy = policy_of(
            offer,
            answers,
            scored,
            generator=writer,
            below=below,
            to=to,
            made_of={**made_of(run, (group.benchmark for group in of)), "seed": seed},
            divtok=divtok_version(),
        )
        found[writer] = replace(offer, policy=policy)
    _say_without(run, name, without, alone=not found)
    return found


def _say_without(run: Run, estimator: str, generators: Sequence[str], *, alone: bool) -> None:
    """Of which generators nothing can be said; an error where there is no other."""
    if not generators:
        return
    what = f"no graded response of {', '.join(generators)} has a confidence of '{estimator}'"
    if alone:
        raise DataError(
            f"In {run.path} {what}.",
            next_step="Choose another estimator, or see what these lack: "
            f"{command('export', run.path, '--out', 'rows.csv')}",
        )
    say(f"decide: {what}")


def keep(run: Run, offers: Mapping[str, Offer]) -> dict[str, Offer]:
    """Keep their policies with the run; where nothing can be written, say so and go on."""
    found = dict(offers)
    try:
        with run.lock():
            for generator, offer in offers.items():
                if offer.policy is not None:
                    found[generator] = replace(offer, policy=_kept(run, offer.policy))
    except StoreError as error:
        say(f"decide: not kept with the run: {error.what}")
    return found


def _kept(run: Run, policy: Policy) -> Policy:
    """Written under its promise's name; that another one had it before is said."""
    path = policy_path(run, policy)
    before = path.read_bytes() if path.exists() else None
    kept = save_policy(policy, path)
    if before not in (None, path.read_bytes()):
        say(f"decide: replaced another policy with the same promise: {path}")
    return kept


def _how_scored(run: Run, groups: Sequence[ScoredGroup], estimator: str) -> HowScored:
    """What a generator's confidences were made with, the same on all benchmarks."""
    first, *others = (how_scored(group, estimator) for group in groups)
    if any(o.params != first.params or not same_share(o.prior, first.prior) for o in others):
        raise DataError(
            f"The confidences of '{estimator}' in {run.path} are made otherwise on each benchmark "
            "(with parameters of their own), so that no threshold means the same on all of them.",
            next_step="Choose another estimator: --estimator",
        )
    _check_not_fitted_here(run, first)
    return first


# Fits that change the order of responses; a rate and a logistic map keep it, and with it what a
# threshold accepts.
_CHANGE_ORDER = ("theta", "isotonic")


def _check_not_fitted_here(run: Run, scored: HowScored) -> None:
    """Refuse what has learned from these very grades, which then seem to confirm it.

    With an isotonic map of 100 to 400 problems a promise of 10 % was broken in 16 to 25 %.
    """
    by_grades = [
        fit
        for fit in stored_fits(run)
        if fit["what"] in _CHANGE_ORDER and fit["target"] == "grades"
    ]
    if here := fitted_here(by_grades, scored.estimator, scored.params):
        raise DataError(
            f"The {' and the '.join(here)} of '{scored.estimator}' was fitted on the grades of "
            f"{run.path}, so these grades cannot say what it is worth.",
            next_step="Choose the threshold on responses to other problems, or score these without "
            f"the fit: {LEAVE_OUT}",
        )
