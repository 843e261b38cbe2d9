"""The verb fit: what makes confidences right for a family, or for the pair of a run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import (
    JsonOption,
    NameOption,
    OutOption,
    OverridesArgument,
    config_from,
    open_with_config,
    run_folder,
)
from divtok.cli.printing import leave_if_failed
from divtok.errors import UsageError, command
from divtok.families.family import get_family
from divtok.progress import say
from divtok.screen import put
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.evaluate.fit_any import AnyFit


class Whats(StrEnum):
    THETA = "theta"
    RATE = "rate"
    ISOTONIC = "isotonic"
    LOGISTIC = "logistic"


class Targets(StrEnum):
    GRADES = "grades"
    AGREEMENT = "agreement"


def fit(
    family: Annotated[
        str | None, typer.Argument(help="The family to fit it for, on its fitting set.")
    ] = None,
    overrides: OverridesArgument = None,
    run: Annotated[str | None, typer.Option(help="Fit it on this run's responses instead.")] = None,
    what: Annotated[
        Whats,
        typer.Option(
            help="theta of dtc_lin, the rate of dtc_weighted or dtc_guarded, or a map to "
            "probabilities: isotonic or logistic."
        ),
    ] = Whats.THETA,
    estimator: Annotated[
        str | None, typer.Option(help="Whose: of a map by default dtc_lin, of a rate dtc_weighted.")
    ] = None,
    target: Annotated[
        Targets,
        typer.Option(
            help="What is right: by grades, or by agreement, the most frequent answer of a "
            "problem, which uses no grade."
        ),
    ] = Targets.GRADES,
    name: NameOption = None,
    out: OutOption = None,
    limit: Annotated[
        int | None, typer.Option(help="Problems of the fitting set; 100 by default.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Responses per problem; by default as the family says, 8 or more."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="Local JSONL instead of the family's fitting set.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit what makes confidences right: by default theta, the lowest ECE of dtc_lin.

    For a family: on its smallest generator and random problems of a set that no table uses. The
    same command with more problems or samples goes on with its run. With --run: on responses that
    are there; take a run whose problems no table of yours uses.

    Prints the curve with a 95 % interval (the same choice on resamples of whole problems), or the
    map, and ECE, Brier and AUROC before and after, on problems that were held out, too. It is kept
    in the run's folder fits, for 'divtok score RUN --fitted' and 'divtok confidence --fitted'.
    """
    from divtok.cli.fit_printing import print_fit
    from divtok.evaluate.fit import ThetaFit
    from divtok.stages import fit as stage

    words = {"what": what.value, "target": target.value}
    if run is not None:
        if any(given is not None for given in (family, overrides, file, name, out, limit, samples)):
            raise UsageError(
                "--run takes everything from the run.", next_step="Leave out the other arguments."
            )
        store, config = open_with_config(run)
        found = stage.fit(store, config, estimator=estimator, **words)
        kept = stage.keep(store, found)
        print_fit(f"the run {run}", found, as_json=as_json)
        if isinstance(found, ThetaFit):
            say(f"use it with: {command('score', run, '--theta', f'{found.theta:g}')}")
        if kept:
            _say_kept(store, found)
        return
    if family is None:
        raise UsageError("There is nothing to fit.", next_step="Give a family, or --run RUN.")
    preset = get_family(family)
    fixed = stage.family_overrides(preset, limit=limit, samples=samples, file=file)
    config = config_from([*(overrides or []), *fixed])
    with Run.begun(run_folder(name, out, default=f"fit-{family}")) as store:
        found = stage.fit_family(store, config, estimator=estimator, **words)
    print_fit(f"the fitting set of '{family}'", found, as_json=as_json)
    if not as_json:
        if isinstance(found, ThetaFit):
            put(f"the family's preset is {preset.theta:g}")
        say(f"report: {store.report / 'README.md'}")
        _say_kept(store, found, family=family)
    leave_if_failed(store)


def _say_kept(store: Run, found: AnyFit, *, family: str | None = None) -> None:
    from divtok.evaluate.fit_map import MapFit
    from divtok.score.fitted import by_hand
    from divtok.stages.fits import fit_path

    assert found.fitted is not None
    path = fit_path(store, found.fitted)
    with_it = command("score", "RUN", "--fitted", path)
    if family is None:
        say(f"kept: {path}; score with it: {with_it}")
        return
    # The file is for the pair it was fitted on; a family's other generators make other pairs.
    pairs = "; ".join(f"p {p}, q {q}" for p, q in found.fitted.pairs)
    say(f"kept: {path}; score a run of its pair alone ({pairs}) with it: {with_it}")
    if not isinstance(found, MapFit):
        every = command("score", "RUN", by_hand(found.fitted))
        say(f"use the number for every generator of '{family}': {every}")
