"""All stages of a run, from problems to confidences."""

from __future__ import annotations

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.stages import gather as evidence
from divtok.stages import generate as generation
from divtok.stages import grade as stages
from divtok.stages import trace as tracing
from divtok.stages.choices import check_choices
from divtok.store.run import Run


def run_stages(
    store: Run, config: RunConfig, *, retry_failed: bool = False, sampled: bool = False
) -> None:
    """problems -> confidences, under the run's lock; what is there already is kept.

    `sampled` says that every trajectory is there, so that no generator is asked for.
    """
    check_choices(config)
    with store.lock():
        tracing.check_pairs(store, config)  # known before anything is spent
        if not sampled:
            generation.generate(store, config, retry_failed=retry_failed)
        stages.grade(store, config, retry_failed=retry_failed)
        tracing.trace(store, config, retry_failed=retry_failed)
        evidence.gather(store, config, retry_failed=retry_failed)
        stages.score(store, config)
        store.write_config(to_yaml(resolve(config)))
