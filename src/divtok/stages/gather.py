"""trajectories -> evidence: what the config's estimators need beside the traces.

Each kind knows how it is gathered; those that ride on p's pass come with the traces.
"""

from __future__ import annotations

from collections.abc import Collection

from divtok.config.run import RunConfig
from divtok.evidence.kind import EVIDENCE, Gathering
from divtok.fill import LOCAL, Executor
from divtok.stages.choices import needed_evidence
from divtok.store.run import Run


def gather(
    run: Run,
    config: RunConfig,
    *,
    retry_failed: bool = False,
    executor: Executor = LOCAL,
    benchmarks: Collection[str] | None = None,
) -> None:
    """trajectories -> evidence, as far as it is needed; with `benchmarks` only for these"""
    work = Gathering(run, config, retry_failed, executor, benchmarks)
    kinds = [EVIDENCE.get(name) for name in needed_evidence(config)]
    for kind in kinds:
        kind.check(work)
    for kind in kinds:
        kind.gather(work)
