"""What an exhibit looks at in its runs, so that no run gathers more for it than that.

The one place that says which pairs and estimators each kind of exhibit reads. An exhibit that comes
to look at more must say so here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from divtok.config.run import RunConfig
from divtok.families.family import Generator
from divtok.paper.parts import generators_of, with_parts
from divtok.score.sets import expand_estimators
from divtok.stages.choices import named_estimators

if TYPE_CHECKING:
    from divtok.paper.recipe import ExhibitKind, NamedRun, Recipe, Side

Pair = tuple[str, str]
# The pair of a fitted theta: None for p where it is the generator itself.
PairKind = tuple[str | None, str]

# Beside the pair that is scored: every other one; those with the same smaller model; those that the
# fitting set has a theta for. What is not named here reads the scored pair alone.
_ALL, _SAME_AUXILIARY, _FITTED = "all", "same auxiliary", "fitted"
_FURTHER: Mapping[ExhibitKind, str] = {
    "theta-map": _ALL,
    "theta-curves": _SAME_AUXILIARY,
    "count": _FITTED,
    "count-ratio": _FITTED,
}
# Made of counts, which every trace has: no estimator needs more than a trace for them.
_FROM_TRACES: frozenset[ExhibitKind] = frozenset(
    ["count", "count-ratio", "theta-map", "theta-curves", "divergence", "saturation", "offset"]
)
_OWN_ESTIMATORS: Mapping[ExhibitKind, frozenset[str]] = {
    "pilot": frozenset(["mean_prob", "uqac_attn", "uqac_mean", "uqac_global"]),
}


def used_by(
    recipe: Recipe,
    side: Side,
    runs: Sequence[NamedRun],
    fitting: Sequence[NamedRun],
    overrides: Sequence[str] = (),
) -> dict[str, RunConfig]:
    """Of each run, `fitting` ones too, the config with no more than the recipe looks at.

    What `overrides` say themselves stays as they say it, and so does a part of which nothing would
    be left: the exhibit then says what it lacks.
    """
    kinds = {kind for run in fitting for kind in _kinds(run.config)}
    of_runs = {run.name: _used(recipe, side, run.config, kinds, overrides) for run in runs}
    needed = {
        _kind(generator, pair)
        for config in of_runs.values()
        for generator in config.generator_presets()
        for pair in config.pairs_for(generator)
    }
    of_fits = {
        run.name: _narrowed(recipe, run.config, overrides, lambda g, pair: _kind(g, pair) in needed)
        for run in fitting
    }
    return of_runs | of_fits


def _used(
    recipe: Recipe,
    side: Side,
    config: RunConfig,
    fitted: set[PairKind],
    overrides: Sequence[str],
) -> RunConfig:
    named = side.generators
    generators = [g for g in generators_of(config) if named is None or g in named]
    duals = (False, True) if recipe.exhibit == "count" else (recipe.dual,)
    further = _FURTHER.get(recipe.exhibit)

    def is_read(generator: Generator, pair: Pair) -> bool:
        if further is None or (pair[0] != generator.model) not in duals:
            return False
        if further == _SAME_AUXILIARY:
            return pair[1] == config.pair_for(generator)[1]
        return further == _ALL or _kind(generator, pair) in fitted

    wanted: set[str] | None = set()
    for generator in config.generator_presets():
        dual = config.pair_for(generator)[0] != generator.model
        of_kind = (side.dual_benchmarks if dual else None) or side.benchmarks
        wanted = None if of_kind is None or wanted is None else wanted | set(of_kind)
    benchmarks = [b for b in config.benchmark_names() if wanted is None or b in wanted]
    return _narrowed(recipe, config, overrides, is_read, generators, benchmarks)


def _narrowed(
    recipe: Recipe,
    config: RunConfig,
    overrides: Sequence[str],
    pair: Callable[[Generator, Pair], bool],
    generators: Sequence[str] = (),
    benchmarks: Sequence[str] = (),
) -> RunConfig:
    """No generators or benchmarks: they stay as they are; `pair` says which further pairs stay."""
    said = {override.partition("=")[0].strip() for override in overrides}
    readers = [g for g in config.generator_presets() if not generators or g.model in generators]
    also = [
        section
        for section in config.trace.also
        if any(pair(g, config.pair_of(g, section)) for g in readers)
    ]
    estimators = named_estimators(config)
    if not said & {"score", "score.estimators"}:
        estimators = _estimators(recipe, estimators)
    return with_parts(
        config,
        generators=generators or generators_of(config),
        benchmarks=benchmarks or config.benchmark_names(),
        also=config.trace.also if said & {"trace", "trace.also"} else also,
        estimators=estimators,
    )


def _estimators(recipe: Recipe, names: list[str]) -> list[str]:
    """The names themselves where the exhibit is made of all of them."""
    own = _OWN_ESTIMATORS.get(recipe.exhibit)
    chosen = expand_estimators(names)
    kept = [
        spec.name
        for spec in chosen
        if (own is None or spec.name in own)
        and (recipe.exhibit not in _FROM_TRACES or not spec.evidence)
    ]
    return kept if kept and len(kept) < len(chosen) else names


def _kinds(config: RunConfig) -> set[PairKind]:
    return {_kind(g, pair) for g in config.generator_presets() for pair in config.pairs_for(g)}


def _kind(generator: Generator, pair: Pair) -> PairKind:
    return (None if pair[0] == generator.model else pair[0]), pair[1]
