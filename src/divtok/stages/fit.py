"""traces and grades -> the theta that fits a run's pair, or a family from the first problem on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

from divtok.config.run import RunConfig
from divtok.evaluate.fit import ThetaFit, fit_theta
from divtok.families.family import Family
from divtok.records import Trace, Verdict
from divtok.stages.evaluate import protocol_of
from divtok.stages.missing import check_read, not_graded
from divtok.stages.report import report
from divtok.stages.run import run_stages
from divtok.stages.stored import scored_traces
from divtok.store.responses import rows_of, stored_responses
from divtok.store.run import Run


def fit(run: Run, config: RunConfig) -> ThetaFit:
    """The theta with the lowest balanced ECE of dtc_lin on the run's trajectories."""
    check_read(run, config)
    verdicts: dict[str, str] = dict(rows_of(run.grades, ("key", "verdict")))
    responses = stored_responses(run)
    if not verdicts.keys() & responses.keys():
        raise not_graded(run, next(iter(responses)))

    def rows() -> Iterator[tuple[tuple[Trace, bool | None], str]]:
        for response, trace in scored_traces(run, config, responses):
            verdict = None if response.truncated else verdicts.get(trace.key)
            decided = verdict in (Verdict.CORRECT, Verdict.INCORRECT)
            outcome = verdict == Verdict.CORRECT if decided else None
            yield (trace, outcome), json.dumps([response.benchmark, response.problem_id])

    outcomes, problems = itertools.tee(rows())  # taken by turns: one trace is held
    linear = config.bound("dtc_lin")
    return fit_theta(
        (outcome for outcome, _ in outcomes),
        problem_ids=(problem for _, problem in problems),
        n=int(linear["n"]),
        a=float(linear["a"]),
        b=float(linear["b"]),
        protocol=protocol_of(config),
    )


def family_overrides(
    family: Family, *, limit: int | None, samples: int | None, file: str | None
) -> Sequence[str]:
    """A config for `fit_family`: the family's smallest generator on its fitting set.

    Without `samples` each problem gets as many as the family's file says.
    """
    overrides = [
        f"family={family.name}",
        f"generators=['{family.generators[0].model}']",
        f"benchmarks=['{family.fit_benchmark}']",
        f"limit={100 if limit is None else limit}",
        "subset_seed=0",
    ]
    if samples is not None:
        overrides.append(f"samples={samples}")
    if file is not None:
        overrides.append(f"benchmark_files.{family.fit_benchmark}={file}")
    return overrides


def fit_family(run: Run, config: RunConfig) -> ThetaFit:
    """Everything from problems to the theta that fits, and the run's report."""
    config = run_stages(run, config)
    found = fit(run, config)
    report(run, config, theta_fits={config.preset.name: found})
    return found
