"""evaluations -> the report folder: tables, figures and a page, and the table of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from divtok.config.run import RunConfig
from divtok.evaluate.fit import ThetaFit
from divtok.report.cascade import cascade_part
from divtok.report.decisions import decisions_part
from divtok.report.part import Part
from divtok.report.running import running_part
from divtok.report.selective import selective_part
from divtok.report.write import write_report
from divtok.stages.cascade import cascade_in
from divtok.stages.evaluate import Results, protocol_of, results_of
from divtok.stages.mistakes import mistakes_report
from divtok.stages.report_age import note_report
from divtok.stages.running import running_results
from divtok.stages.vote import votes_part_of
from divtok.store.run import Run


def report(
    run: Run, config: RunConfig, *, theta_fits: Mapping[str, ThetaFit] | None = None
) -> Results:
    """Evaluate a run, keep the evaluations and write the report. Takes the lock."""
    found = results_of(run, config)
    with run.lock():
        run.evaluations.replace(found.evaluations)
        write_report(
            run.report,
            evaluations=found.evaluations,
            groups=found.groups,
            overall=found.overall,
            base_rates=found.base_rates,
            parts=parts_of(run, config, found),
            notes=found.notes,
            disagreements=None if found.compared is None else found.compared.disagreements,
            theta_fits=theta_fits,
            protocol=protocol_of(config),
            title=f"Run {run.path.name}",
        )
        note_report(run)
    return found


def parts_of(run: Run, config: RunConfig, found: Results) -> list[Part]:
    """What the report says beyond calibration, in the order of its page; each where it can be."""
    makers: list[Callable[[Run, RunConfig, Results], Part | None]] = [
        lambda _run, _config, found: selective_part(found.groups),
        lambda _run, _config, found: decisions_part(found.groups),
        votes_part_of,
        _cascade,
        mistakes_report,
        _running,
    ]
    parts = (make(run, config, found) for make in makers)
    return [part for part in parts if part is not None]


def _cascade(run: Run, config: RunConfig, found: Results) -> Part | None:
    between = cascade_in(config, found)
    return None if between is None else cascade_part(between)


def _running(run: Run, config: RunConfig, found: Results) -> Part:
    of = running_results(run, config, found.groups)
    return running_part(of.figures, of.stops, of.tries, of.majorities, reason=of.reason)
