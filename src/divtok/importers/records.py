"""From rows to records: problems and trajectories that contradict neither each other nor the run.

Pure: what a run holds already comes in as `Before`. Of rows that contradict each other the first
one counts, and the others are errors, or set aside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from divtok.errors import DataError
from divtok.importers.imported import (
    LARGEST_SAMPLE,
    BadRow,
    Imported,
    fault,
    shown,
    unknown_generator,
)
from divtok.importers.importer import each
from divtok.records import Problem, StepLabels, TheirVerdict, Trajectory, trajectory_key

_ID_DIGITS = 12

Group = tuple[str, str, str]  # benchmark, problem id, generator


@dataclass(frozen=True, slots=True)
class Before:
    """What is there before the rows, from other files: records with a word on where each came from.

    Every trajectory's problem is among the problems.
    """

    problems: Sequence[tuple[Problem, str]] = ()
    trajectories: Sequence[tuple[Trajectory, str]] = ()
    verdicts: Sequence[TheirVerdict] = ()
    labels: Sequence[StepLabels] = ()


@dataclass(frozen=True, slots=True)
class Records:
    """What the rows add, and where each trajectory is in its file.

    `repeated` rows were there already, word for word, and add nothing but verdicts and labels.
    `doubled` ones are added, though another file has the same response to the same question.
    `again` has the places of rows that are there twice in these, and of the row that each of them
    repeats; they are added as further samples where samples have no numbers.
    """

    problems: list[Problem] = field(default_factory=list[Problem])
    trajectories: list[Trajectory] = field(default_factory=list[Trajectory])
    places: list[str] = field(default_factory=list[str])
    bad: list[BadRow] = field(default_factory=list[BadRow])
    verdicts: list[TheirVerdict] = field(default_factory=list[TheirVerdict])
    labels: list[StepLabels] = field(default_factory=list[StepLabels])
    again: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    repeated: int = 0
    doubled: int = 0


def to_records(
    rows: Iterable[Imported | BadRow],
    *,
    protocol: str = "cot",
    before: Before | None = None,
    skip_bad: bool = False,
) -> Records:
    """Problems and trajectories of rows that have a generator, a benchmark and a question.

    A contradiction is a `DataError` that names both places; with `skip_bad` its row is set aside.
    Samples without a number are counted in order of appearance, after those that are there.
    """
    gathering = _Gathering(protocol, before or Before())
    found = list(each(rows, gathering.add, skip_bad=skip_bad))
    added = [row for row in found if not isinstance(row, BadRow)]
    return Records(
        problems=gathering.new_problems(),
        trajectories=[trajectory for trajectory, _ in added],
        places=[where for _, where in added],
        bad=[row for row in found if isinstance(row, BadRow)],
        verdicts=gathering.new_verdicts,
        labels=gathering.new_labels,
        again=gathering.again,
        repeated=gathering.repeated,
        doubled=gathering.doubled,
    )


class _Gathering:
    """Rows taken in one by one, each compared with all that came before it."""

    def __init__(self, protocol: str, before: Before) -> None:
        self._protocol = protocol
        self._problems = {(p.benchmark, p.id): (p, where) for p, where in before.problems}
        self._stored = {name: problem for name, (problem, _) in self._problems.items()}
        self._trajectories = {t.key: (t, where) for t, where in before.trajectories}
        self._verdicts = {(v.key, v.scorer): v for v in before.verdicts}
        self._labels = {labels.key: labels for labels in before.labels}
        self.new_verdicts: list[TheirVerdict] = []
        self.new_labels: list[StepLabels] = []
        self._next_sample: dict[Group, int] = {}
        self._numbered: dict[Group, tuple[bool, str]] = {}
        self._others: dict[tuple[str, str, str], set[str]] = {}
        for trajectory, _ in before.trajectories:
            self._count(trajectory)
            said = self._said(trajectory)
            self._others.setdefault(said, set()).add(trajectory.benchmark)
        self._rows: dict[Imported, str] = {}
        self.again: list[tuple[str, str]] = []
        self.repeated = 0
        self.doubled = 0

    def add(self, row: Imported) -> Iterator[tuple[Trajectory, str]]:
        """Take the row in; nothing of it where it contradicts what is there."""
        problem = self._problem(row)
        trajectory, is_new = self._trajectory(row, problem)
        verdicts = self._said_of(row, trajectory)
        labels = self._labels_of(row, trajectory)
        self._verdicts |= {(v.key, v.scorer): v for v in verdicts}
        self.new_verdicts += verdicts
        self._labels |= {one.key: one for one in labels}
        self.new_labels += labels
        name = (problem.benchmark, problem.id)
        self._problems[name] = (problem, self._problems.get(name, (problem, row.where))[1])
        first = self._rows.setdefault(replace(row, where=""), row.where)
        if first != row.where:
            self.again.append((row.where, first))
        if not is_new:
            self.repeated += 1
            return
        self._trajectories[trajectory.key] = (trajectory, row.where)
        self._count(trajectory)
        benchmarks = self._others.get(self._said(trajectory), set())
        # A number of its own within one benchmark says that it is another sample.
        if benchmarks and (row.sample is None or trajectory.benchmark not in benchmarks):
            self.doubled += 1
        yield trajectory, row.where

    def new_problems(self) -> list[Problem]:
        """Those that are not stored, or whose gold answer was not known."""
        found = (problem for problem, _ in self._problems.values())
        return [p for p in found if self._stored.get((p.benchmark, p.id)) != p]

    def _problem(self, row: Imported) -> Problem:
        """The row's problem, its gold answer filled in from wherever it is known."""
        if row.question is None or row.benchmark is None:
            problems = "Give the problems with --problems FILE."
            raise fault(row.where, "the question is not known", problems)
        identity = row.problem_id or _id_of(row.question)
        problem = Problem(identity, row.benchmark, row.question, row.answer)
        there, where = self._problems.get((row.benchmark, identity), (problem, row.where))
        if there.question != problem.question:
            raise _contradiction(row, identity, "question", where)
        if problem.answer is None:
            return there
        if there.answer not in (None, problem.answer):
            raise _contradiction(row, identity, "gold answer", where)
        return problem

    def _said_of(self, row: Imported, trajectory: Trajectory) -> list[TheirVerdict]:
        """The row's verdicts on its trajectory, as far as they are not there already.

        What was extracted and the reason may differ; then the first one stays.
        """
        found = [replace(verdict, key=trajectory.key) for verdict in row.verdicts]
        for verdict in found:
            there = self._verdicts.get((verdict.key, verdict.scorer), verdict)
            if there.verdict != verdict.verdict:
                raise fault(
                    row.where,
                    f"'{shown(verdict.scorer)}' calls the response {verdict.verdict.value}, and "
                    f"called the very same one {there.verdict.value} before",
                    "Import the newer file alone into a new run, or use --skip-bad.",
                )
        return [v for v in found if (v.key, v.scorer) not in self._verdicts]

    def _labels_of(self, row: Imported, trajectory: Trajectory) -> list[StepLabels]:
        """The labels of the row's steps, unless they are there already."""
        if row.labels is None:
            return []
        found = replace(row.labels, key=trajectory.key)
        there = self._labels.get(found.key)
        if there not in (None, found):
            raise fault(
                row.where,
                "the very same response had other labels of its steps before",
                "Import the newer file alone into a new run, or use --skip-bad.",
            )
        return [found] if there is None else []

    def _trajectory(self, row: Imported, problem: Problem) -> tuple[Trajectory, bool]:
        """The row's trajectory, and whether it is new: the very same one may be there already."""
        if row.generator is None:
            raise unknown_generator(row.where)
        group = (problem.benchmark, problem.id, row.generator)
        self._check_numbering(row, group)
        sample = self._next_sample.get(group, 0) if row.sample is None else row.sample
        if sample > LARGEST_SAMPLE:
            raise fault(row.where, f"the number of the sample is above {LARGEST_SAMPLE}")
        trajectory = Trajectory(
            key=trajectory_key(
                problem,
                generator=row.generator,
                protocol=self._protocol,
                sampling=None,
                sample=sample,
            ),
            problem_id=problem.id,
            benchmark=problem.benchmark,
            sample=sample,
            generator=row.generator,
            prompt_ids=(),
            token_ids=(),
            text=row.response,
            finish_reason=row.finish_reason,
            protocol=self._protocol,
            sampling=None,
            reason=row.reason,
        )
        if trajectory.key not in self._trajectories:
            return trajectory, True
        there, where = self._trajectories[trajectory.key]
        if there == trajectory:
            return trajectory, False
        raise fault(
            row.where,
            f"sample {sample} of problem '{shown(problem.id)}' by '{shown(row.generator)}' is "
            f"already at {where}, with another response",
            "Remove one of them, or use --skip-bad, which keeps the first.",
        )

    def _check_numbering(self, row: Imported, group: Group) -> None:
        """Counted and numbered samples of one problem in one file could collide in silence."""
        numbered, where = self._numbered.setdefault(group, (row.sample is not None, row.where))
        if numbered != (row.sample is not None):
            has = "no number" if numbered else "a number"
            raise fault(
                row.where,
                f"a sample of problem '{shown(group[1])}' has {has}, unlike the one at {where}",
                "Number all samples of a problem, or none.",
            )

    def _said(self, trajectory: Trajectory) -> tuple[str, str, str]:
        """Who answered which question with what."""
        problem, _ = self._problems[trajectory.benchmark, trajectory.problem_id]
        return problem.question, trajectory.generator, trajectory.text

    def _count(self, trajectory: Trajectory) -> None:
        group = (trajectory.benchmark, trajectory.problem_id, trajectory.generator)
        following = max(self._next_sample.get(group, 0), trajectory.sample + 1)
        self._next_sample[group] = following


def _id_of(question: str) -> str:
    """A problem's id where its file has none: the same question is the same problem."""
    return "q-" + hashlib.sha256(question.encode()).hexdigest()[:_ID_DIGITS]


def _contradiction(row: Imported, identity: str, what: str, where: str) -> DataError:
    return fault(
        row.where,
        f"problem '{shown(identity)}' has another {what} than at {where}",
        "Correct one of them, name another column with the ids (--column id=COLUMN), or use "
        "--skip-bad, which keeps the first.",
    )
