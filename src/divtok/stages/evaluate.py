"""From stored confidences and grades to evaluations, a report, a fitted theta and examples.

Reads tables only: no model is loaded here, so it starts at once and works on a laptop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from divtok.config.run import RunConfig, load_config
from divtok.errors import DataError, NothingScoredError, StoreError
from divtok.evaluate.certified import Certified, certified
from divtok.evaluate.fit import ThetaFit, fit_theta
from divtok.evaluate.near_theta import NearTheta, near_theta
from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.evaluate.scored_group import LeftOut, ScoreColumn, ScoredGroup
from divtok.records import (
    GOLD_MISSING,
    Confidence,
    Evaluation,
    Grade,
    Problem,
    Trace,
    Trajectory,
    Verdict,
)
from divtok.report.notes import Note, certified_note, left_out_note, near_theta_note
from divtok.score import ESTIMATORS
from divtok.stages.common import scored_pairs
from divtok.store.run import CONFIG_FILE, Run


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One trajectory with everything that is known about it, to be shown to a person."""

    problem: Problem
    trajectory: Trajectory
    grade: Grade
    trace: Trace
    confidence: Confidence


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What a run's tables say: the scored groups, their evaluations, and what to mind in them."""

    groups: list[ScoredGroup]
    evaluations: list[Evaluation]
    left_out: list[LeftOut]
    near_theta: list[NearTheta]
    certified: list[Certified]  # where traces have bounds only

    @property
    def notes(self) -> list[Note]:
        """The same in words, in the order of the report's page."""
        return [
            left_out_note(self.left_out),
            certified_note(self.certified),
            near_theta_note(self.near_theta),
        ]


def stored_config(run: Run, overrides: Sequence[str] = ()) -> RunConfig:
    """The config the run was made with, with `dotted.key=value` overrides on top."""
    if run.config_text() is None:
        raise StoreError(
            f"The run {run.path} has no {CONFIG_FILE}.",
            next_step="Make it with 'divtok run' or 'divtok import'.",
        )
    return load_config(run.path / CONFIG_FILE, overrides)


def protocol_of(config: RunConfig) -> Protocol:
    section = config.evaluate
    return Protocol(
        draws=section.draws, cap=section.cap, bins=section.bins, resamples=section.resamples
    )


def results_of(run: Run, config: RunConfig) -> Results:
    """Everything `evaluate` shows and the report is made of, from one reading of the tables."""
    trajectories = run.trajectories.read()
    groups, left_out = _groups(run, trajectories)
    bounded: list[tuple[str, Trace]] = []

    def exact() -> Iterator[tuple[str, Trace]]:
        """The exact traces, one shard at a time; the others are few and put aside."""
        for generator, trace in _scored_traces(run, config, trajectories):
            if trace.exact:
                yield generator, trace
            else:
                bounded.append((generator, trace))

    near = near_theta(exact(), theta=config.theta, dtypes=_trace_dtypes(run))
    return Results(
        groups=groups,
        evaluations=evaluate_groups(groups, config),
        left_out=left_out,
        near_theta=near,
        certified=certified(bounded, theta=config.theta),
    )


def groups_of(run: Run) -> list[ScoredGroup]:
    """Every benchmark x generator of the run, rows in order of problem and sample."""
    groups, _ = _groups(run, run.trajectories.read())
    return groups


def _groups(
    run: Run, trajectories: Sequence[Trajectory]
) -> tuple[list[ScoredGroup], list[LeftOut]]:
    grades = {grade.key: grade for grade in run.grades.read()}
    scores = _by_estimator(run.confidences.read())
    if not scores:
        raise NothingScoredError(
            f"The run {run.path} has no confidences yet.",
            next_step=f"Score it first: divtok score {run.path}",
        )
    members: dict[tuple[str, str], list[Trajectory]] = {}
    for trajectory in trajectories:
        if trajectory.key not in grades:
            raise DataError(
                f"Trajectory {trajectory.key} of {run.path} has no grade.",
                next_step=f"Grade it first: divtok grade {run.path}",
            )
        members.setdefault((trajectory.benchmark, trajectory.generator), []).append(trajectory)
    kept = {
        group: [t for t in rows if not t.failed and grades[t.key].reason != GOLD_MISSING]
        for group, rows in members.items()
    }
    if not any(kept.values()):
        raise NothingScoredError(
            f"Not one row of the run {run.path} has both a response and a gold answer, so there is "
            "nothing to evaluate.",
            next_step="Its confidences are in the table 'confidences'; import it with gold answers "
            "to evaluate them.",
        )
    left_out = [
        LeftOut(
            *group,
            failed=sum(t.failed for t in rows),
            gold_missing=sum(not t.failed for t in rows) - len(kept[group]),
        )
        for group, rows in members.items()
        if len(kept[group]) < len(rows)
    ]
    return [_group(rows, grades, scores) for rows in kept.values() if rows], left_out


def has_gold(run: Run) -> bool:
    """Whether there is a gold answer to any of the run's problems."""
    return any(problem.answer is not None for problem in run.problems.read())


def evaluate(run: Run, config: RunConfig) -> list[Evaluation]:
    """confidences + grades -> evaluations"""
    return evaluate_groups(groups_of(run), config)


def evaluate_groups(groups: Sequence[ScoredGroup], config: RunConfig) -> list[Evaluation]:
    protocol = protocol_of(config)
    return [evaluation for group in groups for evaluation in evaluate_group(group, protocol)]


def fit(run: Run, config: RunConfig) -> ThetaFit:
    """The theta with the lowest balanced ECE of dtc_lin on the run's trajectories."""
    grades = {grade.key: grade for grade in run.grades.read()}
    trajectories = run.trajectories.read()
    complete = {t.key for t in trajectories if not t.truncated}
    traces = [trace for _, trace in _scored_traces(run, config, trajectories)]
    score = config.score
    return fit_theta(
        traces,
        [_decided(grades.get(t.key)) if t.key in complete else None for t in traces],
        n=score.n,
        a=score.a,
        b=score.b,
        protocol=protocol_of(config),
    )


def examples(
    run: Run, config: RunConfig, *, estimator: str = "dtc_prod"
) -> tuple[Example, Example] | None:
    """A trusted trajectory that is right and a distrusted one that is wrong: the run's extremes.

    None where the run has no such rows. Truncated and ungraded trajectories are passed over.
    """
    problems = {(p.benchmark, p.id): p for p in run.problems.read()}
    grades = {grade.key: grade for grade in run.grades.read()}
    trajectories = run.trajectories.read()
    scored = _scored_traces(run, config, trajectories)
    traces = {trace.key: trace for _, trace in scored if trace.status == "ok"}
    scores = _by_estimator(run.confidences.read()).get(estimator, {})
    found: list[Example] = []
    for trajectory in trajectories:
        confidence, grade = scores.get(trajectory.key), grades.get(trajectory.key)
        if confidence is None or confidence.value is None or grade is None or trajectory.truncated:
            continue
        problem = problems[trajectory.benchmark, trajectory.problem_id]
        trace = traces[trajectory.key]
        found.append(Example(problem, trajectory, grade, trace, confidence))
    right = [e for e in found if e.grade.verdict == Verdict.CORRECT]
    wrong = [e for e in found if e.grade.verdict == Verdict.INCORRECT]
    if not right or not wrong:
        return None
    return max(right, key=_value_then_length), min(wrong, key=_value_then_length)


def _scored_traces(
    run: Run, config: RunConfig, trajectories: Sequence[Trajectory]
) -> Iterator[tuple[str, Trace]]:
    """(generator, trace) of the pairs that are scored.

    Shard by shard: the per-token arrays of a long run need not be held all at once.
    """
    pairs = scored_pairs(config)
    generators = {t.key: t.generator for t in trajectories}
    for traces in run.traces.batches():
        for trace in traces:
            if trace.key not in generators:
                raise DataError(
                    f"The trace {trace.key} of {run.path} belongs to no trajectory.",
                    next_step="Put the missing trajectories back, or trace anew in another run.",
                )
            generator = generators[trace.key]
            if (trace.p, trace.q) == pairs.get(generator):
                yield generator, trace


def _trace_dtypes(run: Run) -> dict[str, str]:
    """model -> the number type it was traced in, as far as the manifest tells."""
    found: dict[str, str] = {}
    for name, section in (run.manifest() or {}).items():
        if name.startswith("trace "):
            found |= section["dtype"]
    return found


def _value_then_length(example: Example) -> tuple[float, int]:
    value = example.confidence.value
    assert value is not None  # examples without one were left out
    return value, len(example.trace)


def _decided(grade: Grade | None) -> bool | None:
    if grade is not None and grade.verdict in (Verdict.CORRECT, Verdict.INCORRECT):
        return grade.verdict == Verdict.CORRECT
    return None


def _by_estimator(confidences: Sequence[Confidence]) -> dict[str, dict[str, Confidence]]:
    """estimator -> key -> confidence"""
    table: dict[str, dict[str, Confidence]] = {}
    for confidence in confidences:
        table.setdefault(confidence.estimator, {})[confidence.key] = confidence
    return table


def _group(
    rows: list[Trajectory],
    grades: dict[str, Grade],
    scores: dict[str, dict[str, Confidence]],
) -> ScoredGroup:
    rows = sorted(rows, key=lambda t: (t.problem_id, t.sample))
    counts, lengths = scores.get("count", {}), scores.get("length", {})
    return ScoredGroup(
        benchmark=rows[0].benchmark,
        generator=rows[0].generator,
        problem_id=[t.problem_id for t in rows],
        verdict=[grades[t.key].verdict for t in rows],
        truncated=[t.truncated for t in rows],
        # In the reader's tokens; the generator's where it was not read.
        length=[_or(_count(lengths.get(t.key)), len(t.token_ids)) for t in rows],
        count=[_count(counts.get(t.key)) for t in rows],
        columns=[_column(name, by_key, rows) for name, by_key in scores.items()],
    )


def _count(confidence: Confidence | None) -> int | None:
    """The estimators `count` and `length` are negated, so that high means likely right."""
    if confidence is None or confidence.value is None:
        return None
    return -int(confidence.value)


def _or(first: int | None, second: int) -> int:
    return second if first is None else first


def _column(name: str, by_key: dict[str, Confidence], rows: list[Trajectory]) -> ScoreColumn:
    found = [by_key.get(t.key) for t in rows]
    return ScoreColumn(
        estimator=name,
        values=[None if c is None else c.value for c in found],
        # Learned parameters differ from group to group.
        params=next((c.params for c in found if c is not None), {}),
        ranking_only=ESTIMATORS.get(name).ranking_only,
    )
