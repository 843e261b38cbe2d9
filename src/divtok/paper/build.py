"""From recipes to exhibits: make the runs that are missing, then every table and figure.

The one place that knows which function makes which kind of exhibit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from divtok.config.joined import in_full
from divtok.config.run import RunConfig
from divtok.errors import UsageError
from divtok.paper import count_figures, figures, sweep_figures, tables
from divtok.paper.exhibit import Exhibit
from divtok.paper.parts import generators_of, holds, joined_parts
from divtok.paper.recipe import ExhibitKind, NamedRun, Recipe, has_runs, runs_of
from divtok.paper.run_tables import Material, choices
from divtok.progress import say, track
from divtok.report.bars import BarsDisplay
from divtok.report.maps import MapsDisplay
from divtok.report.panels import PanelsDisplay
from divtok.stages.choices import chosen_estimators
from divtok.stages.stored import stored_config
from divtok.store.responses import Response, stored_responses
from divtok.store.run import Run, is_run

Builder = Callable[[Recipe, Material], Exhibit]
BUILDERS: Mapping[ExhibitKind, Builder] = {
    "whitebox-table": tables.whitebox,
    "blackbox-table": tables.blackbox,
    "verbalized-table": tables.verbalized,
    "count": count_figures.count,
    "pilot": figures.pilot,
    "calibration": figures.calibration,
    "theta-map": sweep_figures.theta_map,
    "theta-curves": sweep_figures.theta_curves,
    "count-ratio": count_figures.count_ratio,
    "divergence": sweep_figures.divergence,
    "saturation": sweep_figures.over_values,
    "offset": sweep_figures.over_values,
}


def make_runs(runs: Sequence[NamedRun], folder: Path, *, retry_failed: bool = False) -> list[Run]:
    """Bring every run up to its confidences; a finished one is left alone.

    A run that holds what another recipe asked for keeps it, and is only given what it lacks.
    """
    from divtok.stages.run import run_stages

    if unmade := unmakeable(runs, folder):
        raise unmade[0]
    made: list[Run] = []
    for number, named in enumerate(runs, start=1):
        store = Run.create_or_open(folder / named.name)
        made.append(store)
        if is_finished(store, named) and not retry_failed:
            continue
        say(f"run {number} of {len(runs)}: {named.name}")
        sampled = _is_served(named) and _is_sampled(folder / named.name, named)
        if retry_failed and named.config.generate.api.base_url is not None:
            sampled = False  # what failed is asked for again
        # A trial of before may grow into it, and leaves nothing of its own config behind but what
        # belongs to other recipes.
        asked = in_full(named.config)
        all_of_it = in_full(_with_held(store, named))
        run_stages(store, all_of_it, retry_failed=retry_failed, sampled=sampled, part=asked)
    return made


def make_exhibits(chosen: Sequence[Recipe], material: Material) -> list[Exhibit]:
    """Every recipe that has a run of the family, made from what its runs hold; loads no model."""
    made: list[Exhibit] = []
    there = [recipe for recipe in chosen if has_runs(recipe, material.family)]
    with track("exhibits", total=len(there)) as advance:
        for recipe in there:
            made.append(_telling(BUILDERS[recipe.exhibit](recipe, material), recipe, material))
            advance(1)
    return made


def _telling(exhibit: Exhibit, recipe: Recipe, material: Material) -> Exhibit:
    """With what its runs chose otherwise than usual, said of each figure; tables say it."""
    said = choices(material.runs(recipe))
    if not said or not exhibit.figures:
        return exhibit
    figures = tuple(
        replace(figure, about=" ".join([f"{figure.about}.", *said]))
        if isinstance(figure, BarsDisplay | MapsDisplay | PanelsDisplay)
        else figure
        for figure in exhibit.figures
    )
    return replace(exhibit, figures=figures, caption=" ".join([exhibit.caption, *said]))


def is_finished(store: Run, named: NamedRun) -> bool:
    """Whether the run holds a confidence of every estimator for every trajectory it asks for.

    It may hold more: other recipes' generators, benchmarks, pairs and estimators.
    """
    config = named.config
    if store.config_text() is None or not holds(stored_config(store), config):
        return False
    if not _has_all_responses(store, named):
        return False
    asked = {(r.key, r.generator): r.failed for r in _asked(store, named)}
    traced = store.traces.keys()
    pairs = {g.model: config.pairs_for(g) for g in config.generator_presets()}
    for (key, generator), failed in asked.items():
        if not failed and any((key, *pair) not in traced for pair in pairs[generator]):
            return False
    scored = {(c.key, c.estimator) for c in store.confidences.read()}
    chosen = chosen_estimators(config)
    return all((key, spec.name) in scored for key, _ in asked for spec in chosen)


def _with_held(store: Run, named: NamedRun) -> RunConfig:
    """What is asked of the run, and what it was asked for before."""
    if store.config_text() is None:
        return named.config
    return joined_parts(stored_config(store), named.config, named.whole or named.config)


def _asked(store: Run, named: NamedRun) -> list[Response]:
    """The run's responses of the generators and benchmarks that are asked for."""
    generators, benchmarks = generators_of(named.config), named.config.benchmark_names()
    return [
        response
        for response in stored_responses(store).values()
        if response.generator in generators and response.benchmark in benchmarks
    ]


def _has_all_responses(store: Run, named: NamedRun) -> bool:
    """As many as the config asks for, by the problems that the run has kept."""
    config, problems = named.config, Counter(p.benchmark for p in store.problems.read())
    names = config.benchmark_names()
    wanted = sum(
        config.samples_for(generator, name) * problems[name]
        for generator in config.generator_presets()
        for name in names
    )
    return all(problems[name] for name in names) and len(_asked(store, named)) == wanted


def unmakeable(runs: Sequence[NamedRun], folder: Path) -> list[UsageError]:
    """Known before anything is spent: a generator behind an API whose address is not given."""
    return [
        UsageError(
            f"The run {named.name} needs trajectories of {_generator(named)}, which is served "
            "through an API.",
            next_step="Give its address (generate.api.base_url=URL), its name there "
            f"(served_names.{_generator(named)}=NAME) and its key (DIVTOK_KEYS=HOST=VARIABLE in "
            "the environment). --plan shows what the run takes.",
        )
        for named in runs
        if _is_served(named)
        and named.config.generate.api.base_url is None
        and not _is_sampled(folder / named.name, named)
    ]


def makeable(
    chosen: Sequence[Recipe], family: str | None, overrides: Sequence[str], folder: Path
) -> tuple[list[Recipe], list[str]]:
    """Those of the recipes whose runs can all be made, and a sentence on each of the others."""
    kept: list[Recipe] = []
    left_out: list[str] = []
    for recipe in chosen:
        unmade = unmakeable(runs_of([recipe], family, overrides), folder)
        if unmade:
            left_out.append(f"{recipe.name} is left out. {unmade[0].what}")
        else:
            kept.append(recipe)
    return kept, left_out


def _is_served(named: NamedRun) -> bool:
    return named.config.generate.engine == "api"


def _generator(named: NamedRun) -> str:
    return named.config.generator_presets()[0].model


def _is_sampled(folder: Path, named: NamedRun) -> bool:
    """Whether a run is there that has its problems and every trajectory of them."""
    if not is_run(folder):
        return False
    return _has_all_responses(Run(folder), named)
