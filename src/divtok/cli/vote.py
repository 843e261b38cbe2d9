"""The verb vote: one answer out of several samples, and how often that is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json, put_filled
from divtok.errors import UsageError, command
from divtok.progress import say
from divtok.screen import show, width
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.decide.vote_comparison import GeneratorVotes
    from divtok.decide.votes import Stop


class Strategies(StrEnum):
    MAJORITY = "majority"
    BEST = "best"
    LOG_ODDS = "log_odds"
    WEIGHTED = "weighted"


def vote(
    run: RunArgument,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Samples of each problem; by default all.")
    ] = None,
    strategy: Annotated[
        Strategies | None,
        typer.Option(help="How to choose; by default weighted, or majority without confidences."),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(help="Whose confidences; by default dtc_weighted, or dtc_lin without it."),
    ] = None,
    stop: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Stop when the vote's own confidence reaches this, as in 0.95, or when no further "
            "sample can change the answer: settled.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the chosen answers to this CSV, JSONL or Parquet.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose one answer among the samples of each problem, and compare ways to choose.

    Prints how often each way is right with 1, 2, 4, ... samples, beside a majority of as many
    tokens. With --out the chosen answers go to a file, right answers known or not: as
    --strategy, --estimator and --stop say, in order of samples. Loads no model.
    """
    from divtok.stages.vote import (
        ballots_of,
        check_several,
        chosen_votes,
        compare_votes,
        write_votes,
    )

    store, config = open_with_config(run)
    ballots, level = ballots_of(store, config), _level(stop)
    check_several(ballots, samples)
    if out is not None:
        named = None if strategy is None else strategy.value
        votes = chosen_votes(
            ballots, strategy=named, estimator=estimator, samples=samples, stop=level
        )
        write_votes(votes, out)
        say(f"vote: {len(votes)} answers in {out}")
    found = compare_votes(
        ballots,
        config,
        strategy=None if strategy is None else strategy.value,
        estimator=estimator,
        samples=samples,
        level=level if isinstance(level, float) else None,
    )
    if as_json:
        print_json([dataclasses.asdict(of) for of in found])
    elif found:
        _print(found)
    else:
        put_filled(f"Nothing is graded, so how often votes are right is not known. {_next(store)}")


def _next(store: Run) -> str:
    from divtok.stages.evaluate import has_gold

    if has_gold(store) or store.verdicts.keys():
        return f"Grade first: {command('grade', store.path)}"
    return "There is no right answer to any problem; --out FILE writes what is chosen."


def _level(given: str | None) -> Stop:
    from divtok.decide.votes import check_stop

    if given is None or given == "settled":
        return given
    try:
        level = float(given)
    except ValueError as error:
        raise UsageError(
            f"--stop {given} is no number.", next_step="Give --stop 0.95, or --stop settled."
        ) from error
    check_stop(level)
    return level


def _print(found: Sequence[GeneratorVotes]) -> None:
    from divtok.report.terminal import rich_tables
    from divtok.report.votes import vote_sentences, vote_tables

    tables = [table for of in found for table in vote_tables([of]).values()]
    show(rich_tables(tables, width=width()))
    for line in vote_sentences(found):
        put_filled(line)
