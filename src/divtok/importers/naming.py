"""Names that rows lack: the generator and the benchmark, and the problem they belong to.

What the user says on the command line meets here what the files say themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from divtok.errors import DataError, UsageError
from divtok.importers.gold import GoldAnswers
from divtok.importers.imported import BadRow, Imported, shown, unknown_generator
from divtok.problems.jsonl import read_problems
from divtok.records import Problem


@dataclass(frozen=True, slots=True)
class Named:
    """Rows that all have a generator and a benchmark, and what was renamed on the way."""

    rows: list[Imported | BadRow]
    notes: list[str]


def named_rows(
    rows: Iterable[Imported | BadRow],
    *,
    source: str,
    generator: str | None,
    benchmark: str | None,
    stem: str,
) -> Named:
    """Fill in `generator` and `benchmark`, or rename the one that the file names itself.

    Without either the benchmark is called `stem`; a generator has to be named.
    """
    found = list(rows)
    good = [row for row in found if isinstance(row, Imported)]
    notes: list[str] = []
    for field, option in (("generator", generator), ("benchmark", benchmark)):
        names = dict.fromkeys(getattr(row, field) for row in good)
        own = [name for name in names if name is not None]
        if option is not None and own not in ([], [option]):
            if len(names) > 1:
                raise _several(source, field, own, unnamed=None in names)
            notes.append(f"{source}: the {field} '{shown(own[0])}' is called '{option}'")
    if generator is None and any(row.generator is None for row in good):
        where = next(row.where for row in good if row.generator is None)
        raise unknown_generator(where)
    filled = (_filled(row, generator, benchmark, stem) for row in found)
    return Named(list(filled), notes)


def _filled(
    row: Imported | BadRow, generator: str | None, benchmark: str | None, stem: str
) -> Imported | BadRow:
    if isinstance(row, BadRow):
        return row
    return replace(
        row, generator=generator or row.generator, benchmark=benchmark or row.benchmark or stem
    )


def _several(source: str, field: str, own: Sequence[str], *, unnamed: bool) -> UsageError:
    names = ", ".join(f"'{shown(name)}'" for name in own[:5]) + (", ..." if len(own) > 5 else "")
    rest = " and leaves others without" if unnamed else ""
    return UsageError(
        f"{source} names the {field} itself ({names}){rest}, so --{field} would mix them up.",
        next_step=f"Leave --{field} out, or say that the file has none: --column {field}=",
    )


class KnownProblems:
    """Problems with their gold answers from a file of their own, to be joined with rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        golds = GoldAnswers("Write the answer alone.")
        problems = [
            replace(p, answer=golds.alone(p.answer, f"{path}, problem '{shown(p.id)}'"))
            for p in read_problems(path, benchmark="")
        ]
        self.notes = golds.notes(str(path))
        self._by_id = {problem.id: problem for problem in problems}
        self._by_question: dict[str, list[Problem]] = {}
        for problem in problems:
            self._by_question.setdefault(_plain(problem.question), []).append(problem)

    def joined(self, row: Imported) -> Imported:
        """The row with its problem's id and question, and the gold answer of whichever has one."""
        problem = self._problem_of(row)
        answers = [text for text in (problem.answer, row.answer) if text is not None]
        if len({text.strip() for text in answers}) > 1:
            raise DataError(
                f"{row.where}: the gold answer is not that of problem '{shown(problem.id)}' in "
                f"{self.path}.",
                next_step="Correct one of them, or take none from the rows (--column answer=).",
            )
        answer = answers[0] if answers else None
        return replace(row, problem_id=problem.id, question=problem.question, answer=answer)

    def _problem_of(self, row: Imported) -> Problem:
        """By id; a row that has none is known by its question."""
        if row.problem_id is None:
            same = self._by_question.get(_plain(row.question or ""), [])
            if len(same) != 1:
                count = "no problem" if not same else f"{len(same)} problems"
                raise self._unmatched(row, f"{self.path} has {count} with this question")
            return same[0]
        if row.problem_id not in self._by_id:
            raise self._unmatched(row, f"{self.path} has no problem '{shown(row.problem_id)}'")
        problem = self._by_id[row.problem_id]
        # A prompt may say more than the question, but it has to hold it.
        if row.question is not None and _plain(problem.question) not in _plain(row.question):
            raise self._unmatched(
                row, f"the question is not that of problem '{problem.id}' in {self.path}"
            )
        return problem

    def _unmatched(self, row: Imported, why: str) -> DataError:
        return DataError(
            f"{row.where}: {why}.",
            next_step="Give the file with the problems that were asked, name the column with their "
            "ids (--column id=COLUMN), or use --skip-bad.",
        )


def _plain(text: str) -> str:
    return " ".join(text.split())
