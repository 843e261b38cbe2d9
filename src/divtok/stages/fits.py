"""Fits of runs, and fits that a config names: found, read, and held against what they are for."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from divtok.config.run import RunConfig
from divtok.errors import UsageError, command
from divtok.records import Scalar
from divtok.score.fit_file import load_fit
from divtok.score.fitted import PARAMETERS, Fitted, check_pair, check_parameters
from divtok.score.registry import Estimator, bind_parameters
from divtok.stages.kept_files import kept_file, kept_files
from divtok.store.run import Run

LEAVE_OUT = "score.fitted=null"
SECTION, FITS = "score", "fits"  # where the manifest says what a run was scored with

Maps = Mapping[tuple[str, tuple[str, str]], Fitted]  # (estimator, pair) -> the map over its values


def fit_path(run: Run, fitted: Fitted) -> Path:
    return run.fits / f"{fitted.name}.json"


def kept_fits(run: Run) -> list[Path]:
    """The files of what was fitted on a run, by name."""
    return kept_files(run.fits)


def find_fit(given: str) -> Path:
    """The file of a fit: the file itself, or the one that a run holds, by its folder or name."""
    return kept_file(
        given,
        lambda run: run.fits,
        nothing=f"Nothing was fitted on the run {given} yet.",
        several=f"The run {given} has {{}} fits.",
        make=f"Fit something: {command('fit', '--run', given)}",
    )


def named_fits(config: RunConfig) -> list[Fitted]:
    """The fits that the config names, read; two for the same thing are refused."""
    found: dict[tuple[str, str, tuple[str, str]], str] = {}
    fits: list[Fitted] = []
    for given in config.score.fitted or ():
        fitted = load_fit(find_fit(given))
        fits.append(fitted)
        for pair in fitted.pairs:
            kind = "map" if fitted.map is not None else fitted.what
            place = (kind, fitted.estimator, pair)
            if place in found:
                raise UsageError(
                    f"Both {found[place]} and {given} hold {fitted.described()} for one pair.",
                    next_step="Give one of them.",
                )
            found[place] = given
    return fits


def fit_overrides(given: Sequence[str]) -> list[str]:
    """The override that names these fits, their files in full."""
    paths = [str(find_fit(each).resolve()) for each in given]
    return [f"score.fitted={json.dumps(paths)}"] if paths else []


def with_fits(config: RunConfig, *, said: Collection[str] = (), over: bool = False) -> RunConfig:
    """The config with each theta and rate that it names a fit for, where it gives none itself.

    They are kept beside what it gives (`score.of_fits`), which holds again without the fit. With
    `over`, a fitted theta or rate goes before one that the config has, unless `said`, the keys that
    a command names, says otherwise; and so does one that the config has from this already.
    """
    before = config.score.of_fits
    own = config.score.model_copy(update={"of_fits": {}})
    found: dict[str, float] = {}
    for fitted in named_fits(config):
        for name in PARAMETERS:
            if name not in fitted.params:
                continue
            its_own = f"{fitted.estimator}.{name}"
            key = name if name == "theta" else its_own
            theirs = {"theta": own.theta} if name == "theta" else own.given(fitted.estimator)
            given = theirs.get(name) is not None
            goes_before = key in before or (over and name == fitted.what)
            if not given or (goes_before and not _is_said(said, name, its_own)):
                found[key] = float(fitted.params[name])
    return config.model_copy(update={"score": own.model_copy(update={"of_fits": found})})


def said_keys(overrides: Sequence[str]) -> set[str]:
    """The keys of a score section that these overrides give, without the section."""
    keys = (override.partition("=")[0] for override in overrides)
    return {key.partition(".")[2] for key in keys if key.startswith("score.")}


def _is_said(said: Collection[str], name: str, its_own: str) -> bool:
    """Whether one of the keys is this parameter's: of all estimators, or of its own."""
    return any(key in (name, its_own, its_own.partition(".")[0]) for key in said)


def maps_for(
    config: RunConfig,
    chosen: Sequence[Estimator],
    fits: Sequence[Fitted],
) -> Maps:
    """The maps that go over values.

    Every fit must be for a pair, an estimator and parameters that the config scores with, and
    every pair that it scores must have one.
    """
    pairs = dict.fromkeys(config.scored_pairs().values())
    found: dict[tuple[str, tuple[str, str]], Fitted] = {}
    for fitted in fits:
        spec = next((spec for spec in chosen if spec.name == fitted.estimator), None)
        if spec is None:
            raise UsageError(
                f"{fitted.subject} is named, but '{fitted.estimator}' is not scored.",
                next_step=f"Score it too (score.estimators), or leave the fit out: {LEAVE_OUT}",
            )
        own = [pair for pair in pairs if pair in fitted.pairs]
        if not own:
            check_pair(fitted, next(iter(pairs)))
        params: Mapping[str, Scalar] = bind_parameters(spec, config.parameters_of(spec.name))
        check_parameters(fitted, params, config.score.tokens, how=f"leave it out: {LEAVE_OUT}")
        if fitted.map is not None:
            found |= {(spec.name, pair): fitted for pair in own}
    for fitted in fits:
        same = [f for f in fits if (f.what, f.estimator) == (fitted.what, fitted.estimator)]
        for pair in pairs:
            if not any(pair in other.pairs for other in same):
                check_pair(fitted, pair)
    return found


def stored_note(run: Run, fitted: Fitted) -> dict[str, object]:
    """What the manifest keeps of a fit that a run is scored with."""
    return {
        "identity": fitted.identity,
        "what": fitted.what,
        "estimator": fitted.estimator,
        "target": fitted.target,
        "prior": fitted.prior,
        "fitted_here": _fitted_here(run, fitted),
    }


def stored_fits(run: Run) -> list[dict[str, object]]:
    """The fits that the run was scored with, as `stored_note` has them."""
    return ((run.manifest() or {}).get(SECTION) or {}).get(FITS) or []


def _fitted_here(run: Run, fitted: Fitted) -> bool:
    """Whether it was fitted on responses of this run, as its id or the trajectories tell."""
    made_of = fitted.made_of
    if run.id is not None and made_of.get("run") == run.id:
        return True
    tables: Mapping[str, str] = made_of.get("tables") or {}
    return tables.get(run.trajectories.layout.name) == run.trajectories.identity()
