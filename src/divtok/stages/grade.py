"""From trajectories to grades, and from traces to confidences.

Both read one table of a run and write the next. Grading resumes: it makes only the missing rows.
Confidences are cheap and are made anew each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from divtok.config.run import RunConfig
from divtok.errors import NothingScoredError
from divtok.grade import grade_trajectories
from divtok.grade.grader import DEFAULT_GRADER
from divtok.grade.judgement import NO_RESPONSE, no_response, reason_kind
from divtok.progress import say, track
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import (
    GOLD_MISSING,
    Confidence,
    Reading,
    Reply,
    Scalar,
    StepRewards,
    Trace,
    Trajectory,
    Verdict,
)
from divtok.score import Estimator, bind_parameters, score_evidence
from divtok.score.registry import NOT_GATHERED
from divtok.stages.choices import chosen_estimators, left_out_estimators
from divtok.stages.common import check_section, chunks, scored_pairs, stored_trajectories
from divtok.stages.gather import collect
from divtok.store.run import Run

GRADES_PER_SHARD = 256


def grade(run: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """trajectories -> grades"""
    problems = {(p.benchmark, p.id): p for p in run.problems.read()}
    trajectories = stored_trajectories(run)
    _check_grader(run, config.grade.grader)
    present = run.grades.keys()
    failed = {t.key for t in trajectories if t.failed}
    golds = {t.key: problems[t.benchmark, t.problem_id].answer for t in trajectories}
    for stored in run.grades.read():
        # A response or a gold answer that was missing may have come since.
        kind = reason_kind(stored.reason)
        answered = kind == NO_RESPONSE and stored.key not in failed
        known = kind == GOLD_MISSING and golds.get(stored.key) is not None
        again = retry_failed and stored.verdict == Verdict.UNDETERMINED
        if answered or known or again:
            present.discard((stored.key,))
    missing = [t for t in trajectories if (t.key,) not in present]
    done = len(trajectories) - len(missing)
    with track("grade", total=len(trajectories), done=done) as advance:
        pairs = ((t, problems[t.benchmark, t.problem_id].answer) for t in missing)
        grades = grade_trajectories(
            pairs,
            grader=config.grade.grader,
            workers=config.grade.workers,
            time_limit=config.grade.time_limit,
        )
        for shard in chunks(grades, GRADES_PER_SHARD):
            run.grades.append(shard)
            advance(len(shard))
    _say_unanswered(run, trajectories)


def _check_grader(run: Run, grader: str) -> None:
    """Refuse to mix the grades of two graders; a run that names none was graded by the default."""
    stored, rows = run.manifest() or {}, run.grades.keys()
    if "grade" not in stored and grader == DEFAULT_GRADER:
        return
    if "grade" not in stored and rows:
        run.write_manifest({**stored, "grade": {"grader": DEFAULT_GRADER}})
    check_section(run, rows, "grade", {"grader": grader})


def score(run: Run, config: RunConfig) -> None:
    """traces and evidence -> confidences"""
    chosen = chosen_estimators(config)
    pairs = scored_pairs(config)
    trajectories = [t for t in stored_trajectories(run) if t.generator in pairs]
    failed = {t.key: no_response(t.reason) for t in trajectories if t.failed}
    pair_of = {t.key: pairs[t.generator] for t in trajectories}
    traces = {t.key: t for t in run.traces.read() if (t.p, t.q) == pair_of.get(t.key)}
    evidence = collect(run, config, trajectories)
    groups: dict[tuple[str, str], list[str]] = {}
    for t in trajectories:
        groups.setdefault((t.benchmark, t.generator), []).append(t.key)
    confidences: list[Confidence] = []
    for keys in groups.values():
        readable = [traces[k] for k in keys if k in traces and traces[k].status == "ok"]
        bound = [(spec, _parameters(spec, config, readable)) for spec in chosen]
        confidences += [
            score_evidence(spec, key, traces.get(key), evidence[key], parameters)
            if key not in failed
            else Confidence(key, spec.name, parameters, None, failed[key])
            for key in keys
            for spec, parameters in bound
        ]
    if not any(confidence.value is not None for confidence in confidences):
        raise NothingScoredError(
            f"Not one trajectory of {run.path} could be scored.",
            next_step="Look at the column 'reason' of its traces and of what was gathered.",
        )
    run.confidences.replace(confidences)
    scored = {c.estimator for c in confidences if c.value is not None}
    empty = [spec.name for spec in chosen if spec.name not in scored]
    if empty:
        why = next(c.reason or "" for c in confidences if c.estimator == empty[0])
        made = why.endswith(NOT_GATHERED)
        say(
            f"score: no value at all for {', '.join(empty)} ({why})"
            + (f"; what is missing is made by: divtok gather {run.path}" if made else "")
        )
    _say_what_is_odd(config, trajectories, traces)
    say(
        f"score: {len(chosen)} estimators, {len(confidences)} confidences at theta {config.theta:g}"
    )


def _say_unanswered(run: Run, trajectories: Sequence[Trajectory]) -> None:
    """Responses of other prompts may end in another way than divtok looks for."""
    graded = [g for g in run.grades.read() if g.verdict == Verdict.UNANSWERED]
    if 2 * len(graded) > len(trajectories):
        why = PROTOCOLS.get(trajectories[0].protocol).no_answer
        say(f"grade: {len(graded)} of {len(trajectories)} responses are unanswered: {why}")


def _say_what_is_odd(
    config: RunConfig, trajectories: Sequence[Trajectory], traces: Mapping[str, Trace]
) -> None:
    preset = config.preset
    fitted = {preset.pair_for(generator) for generator in preset.generators}
    other = any(
        config.pair_for(g) not in fitted or (g.foreign and preset.reader is None)
        for g in config.generator_presets()
    )
    if other and config.theta == preset.theta:
        say(
            f"score: theta {config.theta:g} was fitted for the pairs of the family "
            f"'{preset.name}' and its own generators, not for this one"
        )
    left_out = left_out_estimators(config)
    if left_out:
        say(
            f"score: {', '.join(left_out)} left out: servers list their most likely tokens, not "
            "whole distributions"
        )
    untraced = sum(t.key not in traces and not t.failed for t in trajectories)
    if untraced:
        say(
            f"score: {untraced} of {len(trajectories)} responses were not read by the pair yet: "
            "score --pair or --family reads them"
        )


def failed_rows(run: Run) -> list[str]:
    """Why rows hold no numbers, one reason for each: traces, and what was gathered beside them."""
    reasons = [f"response: {t.reason}" for t in run.trajectories.read() if t.failed]
    reasons += [f"trace: {t.reason}" for t in run.traces.read() if t.status != "ok"]
    for table in (run.replies, run.readings, run.rewards):
        rows: Sequence[Reply | Reading | StepRewards] = table.read()
        reasons += [
            f"{table.layout.name}: {row.reason}"
            for row in rows
            # What a server did not report with its response cannot be had any more.
            if row.reason is not None and not (isinstance(row, Reading) and row.kind == "sampled")
        ]
    return reasons


def _parameters(spec: Estimator, config: RunConfig, traces: Sequence[Trace]) -> dict[str, Scalar]:
    """The estimator's parameters, learned from these traces where it learns any."""
    given = config.estimator_parameters()
    if spec.fit is None:
        return bind_parameters(spec, given)
    if not traces:
        return {}  # nothing to learn from, and nothing to score
    return bind_parameters(spec, {**given, **spec.fit(traces)})
