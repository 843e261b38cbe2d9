"""The verdicts of the tool that a run's responses come from: chosen, as grades, or beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from divtok.config.run import RunConfig
from divtok.errors import NothingScoredError, UsageError, did_you_mean
from divtok.evaluate.agreement import Compared, Judged, compare
from divtok.grade.judgement import no_response
from divtok.records import VERDICT_MISSING, Grade, Reason, TheirVerdict, Trajectory, Verdict
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run


class Chosen(NamedTuple):
    """One verdict for each response that has one, and whose they are, in words."""

    verdicts: dict[str, TheirVerdict]
    said: str


def chosen_verdicts(
    run: Run, config: RunConfig, responses: Sequence[Trajectory | Response]
) -> Chosen:
    """Those of the config's scorer, or of each benchmark's first: a benchmark is never mixed."""
    stored = run.verdicts.read()
    if not stored:
        raise NothingScoredError(
            f"The responses of {run.path} came without verdicts.",
            next_step="Leave --verdict out (grade.verdicts=ours), or import a log that has them.",
        )
    benchmark_of = {r.key: r.benchmark for r in responses}
    scorers: dict[str, list[str]] = {}
    for verdict in stored:
        names = scorers.setdefault(benchmark_of[verdict.key], [])
        if verdict.scorer not in names:
            names.append(verdict.scorer)
    known = list(dict.fromkeys(name for names in scorers.values() for name in names))
    asked = config.grade.scorer
    if asked is not None and asked not in known:
        raise UsageError(
            f"No verdict of {run.path} is by a scorer '{asked}'.",
            next_step=did_you_mean(asked, known),
        )
    taken = {benchmark: asked or names[0] for benchmark, names in scorers.items()}
    verdicts = {v.key: v for v in stored if v.scorer == taken[benchmark_of[v.key]]}
    return Chosen(verdicts, _said(taken, known))


def theirs_as_grade(trajectory: Trajectory, verdict: TheirVerdict | None) -> Grade:
    """Their verdict as the grade of a response; undetermined where they have none."""
    if trajectory.failed:
        reason = no_response(trajectory.reason)
        return Grade(trajectory.key, None, Verdict.UNDETERMINED, reason)
    if verdict is None:
        reason = Reason(VERDICT_MISSING, "the file has no verdict on this response")
        return Grade(trajectory.key, None, Verdict.UNDETERMINED, reason)
    reason = verdict.reason or Reason("theirs", f"the verdict of '{verdict.scorer}'")
    return Grade(trajectory.key, verdict.extracted, verdict.verdict, reason)


def compared_verdicts(run: Run, config: RunConfig) -> Compared:
    """The grades, which are ours, beside their verdicts."""
    responses = stored_responses(run)
    theirs, said = chosen_verdicts(run, config, list(responses.values()))
    names = ("benchmark", "id", "answer")
    golds = {(b, i): answer for b, i, answer in rows_of(run.problems, names)}
    ours = {grade.key: grade for grades in run.grades.batches() for grade in grades}

    def judged(response: Response) -> Judged:
        our, their = ours.get(response.key), theirs.get(response.key)
        return Judged(
            response.key,
            response.benchmark,
            response.generator,
            response.problem_id,
            golds[response.benchmark, response.problem_id],
            None if our is None else our.extracted,
            None if our is None else our.verdict,
            None if their is None else their.scorer,
            None if their is None else their.extracted,
            None if their is None else their.verdict,
        )

    return compare((judged(r) for r in responses.values() if not r.failed), theirs=said)


def _said(taken: dict[str, str], known: Sequence[str]) -> str:
    names = list(dict.fromkeys(taken.values()))
    others = [name for name in known if name not in names]
    text = f"theirs are the verdicts of {_quoted(names)}"
    if others:
        text += f"; also there, for --scorer: {_quoted(others)}"
    return text


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
