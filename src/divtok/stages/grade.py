"""trajectories -> grades: answers are found and compared with the gold answers.

Or the verdicts of the tool that the responses come from are the grades, where the config says so.
The two never mix: a run that goes over from one to the other is graded anew.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from divtok.config.made_with import libraries
from divtok.config.run import RunConfig
from divtok.errors import command
from divtok.evidence.kind import stored_trajectories
from divtok.fill import LOCAL, Executor, Task, Work, fill, keep_new
from divtok.grade.grader import DEFAULT_GRADER
from divtok.grade.judgement import NO_RESPONSE
from divtok.grade.trajectories import grade_trajectories
from divtok.progress import say
from divtok.protocols.extract import find_answer_by
from divtok.protocols.fallbacks import asks_for_box
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import GOLD_MISSING, Grade, Trajectory, Verdict, reason_kind
from divtok.stages.verdicts import chosen_verdicts, compared_verdicts, theirs_as_grade
from divtok.store.responses import rows_of
from divtok.store.run import Run
from divtok.store.sections import check_section
from divtok.store.space import ROW_BYTES, require_space

GRADES_PER_SHARD = 256
_SECTION = "grade"

Golds = dict[tuple[str, str], str | None]  # (benchmark, problem id) -> gold answer


def grade(
    run: Run, config: RunConfig, *, retry_failed: bool = False, executor: Executor = LOCAL
) -> None:
    """trajectories -> grades"""
    names = ("benchmark", "id", "answer", "question")
    problems = {(b, i): (answer, asked) for b, i, answer, asked in rows_of(run.problems, names)}
    golds: Golds = {key: answer for key, (answer, _) in problems.items()}
    questions = {key: asked for key, (_, asked) in problems.items()}
    trajectories = stored_trajectories(run)
    if config.grade.verdicts == "theirs":
        _keep_theirs(run, config, trajectories)
        return
    _forget_theirs(run)
    graders = {name: config.grader_for(name) for name in {t.benchmark for t in trajectories}}
    _check_graders(run, config, graders, trajectories)
    present = run.grades.keys()
    present -= _again(run, trajectories, golds, retry_failed=retry_failed)
    present -= _found_otherwise(run, config, trajectories)

    def begin(missing: Sequence[Sequence[Trajectory]]) -> None:
        require_space(run.path, len(missing) * ROW_BYTES)
        run.note_maker(run.grades.layout.name, libraries())

    task = Task(
        "grade",
        [[t] for t in trajectories],  # each is graded by itself
        is_missing=lambda t: (t.key,) not in present,
        open=lambda: _grading(config, graders, golds, questions),
        keep=keep_new(run.grades, present),
        begin=begin,
    )
    fill(task, executor)
    _say_unanswered(run, trajectories)
    _say_verdicts(run, config, golds)


def _keep_theirs(run: Run, config: RunConfig, trajectories: Sequence[Trajectory]) -> None:
    """The other tool's verdicts as grades, all of them: they may have changed with the scorer."""
    theirs = chosen_verdicts(run, config, trajectories)
    say(f"grade: {theirs.said}")
    grades = [theirs_as_grade(t, theirs.verdicts.get(t.key)) for t in trajectories]
    # First, so that whatever is stored of them is never taken for grades of ours.
    run.write_manifest({**(run.manifest() or {}), _SECTION: {"verdicts": theirs.said}})
    if run.grades.read() != grades:
        run.note_maker(run.grades.layout.name, libraries())
        run.grades.replace(grades)


def _say_verdicts(run: Run, config: RunConfig, golds: Golds) -> None:
    """How ours and theirs compare, or that there are only theirs."""
    if config.grade.verdicts == "both":
        compared = compared_verdicts(run, config)
        for line in (compared.theirs, *(group.sentence() for group in compared.groups)):
            say(f"grade: {line}")
    elif run.verdicts.keys() and not any(golds.values()):
        say(
            "grade: there is no gold answer, but there are verdicts of the tool the responses come "
            f"from, which these take: {command('grade', run.path, '--verdict', 'theirs')}"
        )


@contextmanager
def _grading(
    config: RunConfig,
    graders: Mapping[str, str],
    golds: Golds,
    questions: Mapping[tuple[str, str], str],
) -> Generator[Work[Trajectory, Grade]]:
    section = config.grade

    def work(batches: Sequence[Sequence[Trajectory]]) -> Iterator[Sequence[Grade]]:
        grades = grade_trajectories(
            ((t, golds[t.benchmark, t.problem_id]) for batch in batches for t in batch),
            grader=graders,
            workers=section.workers,
            time_limit=section.time_limit,
            options={"judge": section.judge},
            questions=questions,
            extract=section.extract,
        )
        while shard := list(islice(grades, GRADES_PER_SHARD)):
            yield shard

    yield work


def _again(
    run: Run, trajectories: Sequence[Trajectory], golds: Golds, *, retry_failed: bool
) -> set[tuple[str, ...]]:
    """The grades to make anew: what was missing then may have come since."""
    failed = {t.key for t in trajectories if t.failed}
    known = {t.key for t in trajectories if golds[t.benchmark, t.problem_id] is not None}
    found: set[tuple[str, ...]] = set()
    for grades in run.grades.batches():
        for stored in grades:
            kind = reason_kind(stored.reason)
            if (
                (kind == NO_RESPONSE and stored.key not in failed)
                or (kind == GOLD_MISSING and stored.key in known)
                or (retry_failed and stored.verdict == Verdict.UNDETERMINED)
            ):
                found.add((stored.key,))
    return found


def _found_otherwise(
    run: Run, config: RunConfig, trajectories: Sequence[Trajectory]
) -> set[tuple[str, ...]]:
    """The grades whose answer is elsewhere, or nowhere, now that it is looked for otherwise."""
    extract = config.grade.extract
    protocols = {t.protocol: PROTOCOLS.get(t.protocol) for t in trajectories}
    unaffected = [name for name, protocol in protocols.items() if not asks_for_box(protocol)]
    if extract == "released" and unaffected:
        say(
            "grade: grade.extract=released is about answers in a box; those of the protocol "
            f"{', '.join(unaffected)} are found as always"
        )
    found: set[tuple[str, ...]] = set()
    responses = {t.key: t for t in trajectories if not t.failed}
    for grades in run.grades.batches():
        for stored in grades:
            response = responses.get(stored.key)
            if extract == "boxed" and stored.fallback is not None:
                found.add((stored.key,))
            elif extract == "released" and stored.extracted is None and response is not None:
                span, _ = find_answer_by(response.text, protocols[response.protocol], extract)
                if span is not None:
                    found.add((stored.key,))
    if found:
        say(f"grade: the answers of {len(found)} responses are looked for anew ({extract})")
    return found


def _forget_theirs(run: Run) -> None:
    """Make room for grades of ours where the verdicts of another tool were the grades."""
    stored = run.manifest() or {}
    if "verdicts" in stored.get(_SECTION, {}):
        say("grade: the grades were verdicts of another tool, and are made anew")
        run.grades.replace([])
        run.write_manifest({name: s for name, s in stored.items() if name != _SECTION})


def _check_graders(
    run: Run, config: RunConfig, names: Mapping[str, str], trajectories: Sequence[Trajectory]
) -> None:
    """Refuse to mix the grades of two graders, or of two judges, in a benchmark.

    One grader for all benchmarks is written down as such, and the default not at all.
    """
    judge = f"judge: {config.grade.judge.model}"
    graders = {b: judge if name == "judge" else name for b, name in names.items()}
    stored, rows = run.manifest() or {}, run.grades.keys()
    known = stored.get(_SECTION, {}).get("grader", DEFAULT_GRADER)
    graded = {t.benchmark for t in trajectories if (t.key,) in rows}
    before = {b: known if isinstance(known, str) else known.get(b) for b in graded}
    several = len(set(graders.values())) > 1
    now: object = dict(sorted(graders.items())) if several else next(iter(graders.values()), known)
    if _SECTION not in stored and now == DEFAULT_GRADER:
        return
    if before != {b: graders[b] for b in graded}:
        run.write_manifest({**stored, _SECTION: {"grader": known}})
        check_section(run, rows, _SECTION, {"grader": now})
    run.write_manifest({**stored, _SECTION: {"grader": now}})


def _say_unanswered(run: Run, trajectories: Sequence[Trajectory]) -> None:
    """Responses of other prompts may end in another way than divtok looks for."""
    verdicts = [verdict for (verdict,) in rows_of(run.grades, ("verdict",))]
    unanswered = verdicts.count(Verdict.UNANSWERED)
    if 2 * unanswered > len(trajectories):
        names = dict.fromkeys(t.protocol for t in trajectories)
        lacking = "; ".join(PROTOCOLS.get(name).no_answer for name in names)
        say(f"grade: {unanswered} of {len(trajectories)} responses are unanswered: {lacking}")
