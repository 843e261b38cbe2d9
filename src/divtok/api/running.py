"""What a run's traces tell of confidences while responses are written, as tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from divtok.api.tables import Records
from divtok.decide.early import SafeStop
from divtok.decide.tries import Majority, StopAndTry
from divtok.evaluate.running import RunningFigures
from divtok.stages import running as stage


@dataclass(frozen=True, slots=True)
class RunningResults(stage.RunningResults):
    """What a run's traces tell of confidences while responses are written.

    `figures` say how much a confidence is worth after a part of the response, `stops` what is saved
    by stopping responses that cannot be accepted any more, `tries` what comes of trying the next
    sample instead, and `majorities` what the most frequent answer of several samples comes to.
    `left_out` says of estimators why they are in no figure, `reason` why there is none at all.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=25, benchmarks=["arith-easy"], out="example")
        >>> found = run.running()
        >>> sorted({stop.estimator for stop in found.stops})
        ['dtc_guarded', 'dtc_lin', 'dtc_weighted']
        >>> all(0 <= stop.saved < 1 for stop in found.stops)
        True
    """

    figures: Records[RunningFigures] = field(default_factory=lambda: Records(RunningFigures, ()))
    stops: Records[SafeStop] = field(default_factory=lambda: Records(SafeStop, ()))
    tries: Records[StopAndTry] = field(default_factory=lambda: Records(StopAndTry, ()))
    majorities: Records[Majority] = field(default_factory=lambda: Records(Majority, ()))


def as_tables(found: stage.RunningResults) -> RunningResults:
    return RunningResults(
        figures=Records(RunningFigures, found.figures),
        stops=Records(SafeStop, found.stops),
        tries=Records(StopAndTry, found.tries),
        majorities=Records(Majority, found.majorities),
        left_out=found.left_out,
        reason=found.reason,
    )
