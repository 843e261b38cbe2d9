"""All stages of a run, from problems to confidences."""

from __future__ import annotations

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.fill import LOCAL, Executor
from divtok.stages.choices import check_choices, chosen_estimators
from divtok.stages.continued import check_joins
from divtok.stages.fits import maps_for, named_fits, with_fits
from divtok.stages.gather import gather
from divtok.stages.generate import generate
from divtok.stages.grade import grade
from divtok.stages.pair_warnings import known_before, say_warnings
from divtok.stages.score import score
from divtok.stages.settle import settled
from divtok.stages.trace import check_pairs, trace
from divtok.store.run import Run


def run_stages(
    store: Run,
    config: RunConfig,
    *,
    retry_failed: bool = False,
    sampled: bool = False,
    executor: Executor = LOCAL,
    part: RunConfig | None = None,
) -> RunConfig:
    """problems -> confidences, under the run's lock; what is there already is kept.

    Gives the config of the whole run, of which a command may name only a part. `sampled` says that
    every trajectory is there, so that no generator is asked for. With `part`, which names some of
    the config's generators, benchmarks, pairs and estimators, only its rows are made where they are
    missing; the run is scored and described as a whole.
    """
    config = with_fits(settled(store, config))
    check_choices(config)
    maps_for(config, chosen_estimators(config), named_fits(config))  # refused before any work
    warnings = known_before(config)
    say_warnings(warnings)
    with store.lock():
        if not sampled:
            check_joins(store, config)
        check_pairs(store, config)  # known before anything is spent
        if not sampled:
            generate(store, config, retry_failed=retry_failed, executor=executor, part=part)
        grade(store, config, retry_failed=retry_failed, executor=executor)
        asked, names = (config, None) if part is None else (part, set(part.benchmark_names()))
        for read in (trace, gather):
            read(store, asked, retry_failed=retry_failed, executor=executor, benchmarks=names)
        score(store, config, said=warnings)
        store.write_config(to_yaml(resolve(config)))
    return config
