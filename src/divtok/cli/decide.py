"""The verb decide: from which confidence on an answer may be accepted, and what a policy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json, put_filled
from divtok.errors import EXIT_NOTHING, UsageError, command
from divtok.progress import say
from divtok.screen import put, visible

if TYPE_CHECKING:
    from divtok.decide.offer import Offer
    from divtok.stages.policies import Applied
    from divtok.store.run import Run


DELTA = 0.1


class Belows(StrEnum):
    ABSTAIN = "abstain"
    ESCALATE = "escalate"


def decide(
    run: RunArgument,
    risk: Annotated[
        float | None,
        typer.Option(help="The share of accepted answers that may be wrong, as in 0.05."),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="The chance that the promise is broken all the same.")
    ] = DELTA,
    estimator: Annotated[
        str | None, typer.Option(help="Whose confidence decides; dtc_lin, if it is there.")
    ] = None,
    generator: Annotated[
        str | None, typer.Option(help="Whose answers; by default a policy for each generator.")
    ] = None,
    below: Annotated[
        Belows, typer.Option(help="What happens to an answer below the threshold.")
    ] = Belows.ABSTAIN,
    to: Annotated[
        str | None, typer.Option(help="The model to ask instead, with --below escalate.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(min=0, help="Draws the response of each problem, where not all are tested."),
    ] = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|RUN",
            help="Apply this policy to the run instead: its file, or the run that holds it.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the decision on each response: .csv, .jsonl or .parquet."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the threshold above which answers may be accepted, with a promise on how many are wrong.

    With --risk 0.05 --delta 0.1: at most 5 % of accepted answers are wrong, with chance 90 %,
    for problems like those of the run, whatever the confidences are worth. First comes the floor:
    what any rule must withhold. Where the promise cannot be kept, what can be is said. The policy
    is kept in the run's folder policies, for 'divtok confidence --policy', Python, and this verb
    with --policy on another run of the same pair.
    """
    from divtok.stages import decide as stage

    store, config = open_with_config(run)
    if policy is not None:
        settled = {
            "--risk": risk is not None,
            "--delta": delta != DELTA,
            "--estimator": estimator is not None,
            "--generator": generator is not None,
            "--below": below is not Belows.ABSTAIN,
            "--to": to is not None,
            "--seed": seed != 0,
        }
        if any(settled.values()):
            named = ", ".join(name for name, given in settled.items() if given)
            raise UsageError(
                f"A policy that is applied has been settled: {named}.",
                next_step=f"Leave out {named}, or --policy.",
            )
        from divtok.stages.policies import apply_policy, find_policy

        applied = apply_policy(store, config, find_policy(policy))
        if out is not None:
            from divtok.stages.decisions_file import write_decisions

            say(f"decisions: {write_decisions(applied, out):,} rows in {out}")
        _print_applied(applied, as_json=as_json)
        if store.id is not None and applied.policy.made_of.get("run") == store.id:
            say("decide: the policy was made on this run, so its grades are no test of it")
        return
    if risk is None:
        raise UsageError(
            "There is nothing to decide by.",
            next_step="Give --risk, as in --risk 0.05, or --policy FILE.",
        )
    if out is not None:
        raise UsageError(
            "--out writes the decisions of a policy.", next_step="Give it with --policy FILE."
        )
    offers = stage.decide(
        store,
        config,
        risk=risk,
        delta=delta,
        estimator=estimator,
        generator=generator,
        below=below.value,
        to=to,
        seed=seed,
    )
    offers = stage.keep(store, offers)
    if as_json:
        print_json({name: asdict(offer) for name, offer in offers.items()})
    else:
        _print_offers(offers)
        _say_kept(store, offers)
    if all(offer.policy is None for offer in offers.values()):
        say("next: more problems, or a higher --risk; choose another --estimator on other problems")
        raise typer.Exit(EXIT_NOTHING)


def _print_offers(offers: Mapping[str, Offer]) -> None:
    from divtok.report.decisions import floor_line, offer_lines

    for generator, offer in offers.items():
        put(visible(generator))
        for line in [floor_line(offer), *offer_lines(offer)]:
            put_filled(f"  {visible(line)}", indent="  ")


def _say_kept(store: Run, offers: Mapping[str, Offer]) -> None:
    """Where the policies are, and what to do with them."""
    from divtok.stages.policies import policy_path

    made = [offer.policy for offer in offers.values() if offer.policy is not None]
    paths = [policy_path(store, policy) for policy in made if policy.identity is not None]
    for path in paths:
        say(f"kept: {path}")
    if paths:
        say(f"use it: {command('decide', 'RUN', '--policy', paths[0])}, or with one answer: "
            f"{command('confidence', '--policy', paths[0])} ...")  # fmt: skip


def _print_applied(applied: Applied, *, as_json: bool) -> None:
    policy, rows = applied.policy, len(applied.rows)
    if as_json:
        print_json(
            {
                "policy": policy.identity,
                "promise": policy.promise,
                "threshold": policy.threshold,
                "responses": rows,
                "actions": applied.actions,
                "graded": applied.graded,
                "wrong": applied.wrong,
                "wrong_interval": applied.wrong_interval and asdict(applied.wrong_interval),
                "warning": applied.warning,
            }
        )
        return
    put(f"{policy.scored.estimator} from {policy.threshold:.4g} on: {policy.promise}")
    done = ", ".join(f"{action} {n:,} ({100 * n / rows:.1f} %)" for action, n in _actions(applied))
    put(f"{rows:,} responses: {done}")
    if applied.wrong is not None and applied.wrong_interval is not None:
        low, high = (100 * end for end in (applied.wrong_interval.low, applied.wrong_interval.high))
        put(
            f"of {applied.graded:,} accepted and graded {100 * applied.wrong:.1f} % are wrong "
            f"(95 % interval {low:.1f} to {high:.1f} %)"
        )
    if applied.warning is not None:
        say(f"warning: {applied.warning}")


def _actions(applied: Applied) -> list[tuple[str, int]]:
    return sorted(applied.actions.items(), key=lambda item: item[0] != "accept")
