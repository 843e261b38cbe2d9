"""traces and grades -> the theta that fits a run's pair."""

from __future__ import annotations

from collections.abc import Iterator

from divtok.config.run import RunConfig
from divtok.evaluate.fit import ThetaFit, fit_theta
from divtok.records import Trace, Verdict
from divtok.stages.evaluate import protocol_of
from divtok.stages.stored import scored_traces
from divtok.store.responses import rows_of, stored_responses
from divtok.store.run import Run


def fit(run: Run, config: RunConfig) -> ThetaFit:
    """The theta with the lowest balanced ECE of dtc_lin on the run's trajectories."""
    verdicts: dict[str, str] = dict(rows_of(run.grades, ("key", "verdict")))
    responses = stored_responses(run)

    def outcomes() -> Iterator[tuple[Trace, bool | None]]:
        for response, trace in scored_traces(run, config, responses):
            verdict = None if response.truncated else verdicts.get(trace.key)
            decided = verdict in (Verdict.CORRECT, Verdict.INCORRECT)
            yield trace, verdict == Verdict.CORRECT if decided else None

    linear = config.bound("dtc_lin")
    return fit_theta(
        outcomes(),
        n=int(linear["n"]),
        a=float(linear["a"]),
        b=float(linear["b"]),
        protocol=protocol_of(config),
    )
