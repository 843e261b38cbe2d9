r"""One way to read a file of any format: options checked first, then rows with all their names.

What the user says on the command line meets here what the files say themselves. Gold answers become
what the grader needs: the answer alone. A worked solution says where its answer is: after "####",
as in GSM8K, or in a `\boxed{}`. One that does neither is refused, because every response would be
graded wrong against it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from divtok.compressed import plain_name
from divtok.errors import DataError, UsageError
from divtok.importers.answers import AUTO
from divtok.importers.imported import BadRow, Imported, fault, shown, unknown_generator
from divtok.importers.importer import IMPORTERS, ImportOptions, each
from divtok.problems.jsonl import read_problems
from divtok.protocols.boxed import find_boxed
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Problem

_SET_ASIDE = "Correct it, or have it set aside: without --strict, in Python with skip_bad=True."
_MARK = "####"
# An answer of several lines, not a solution. Aligned equations are one, so they are not here.
_ARRAY = re.compile(
    r"\$*\s*\\begin\{(?P<kind>[a-z]*matrix|array|cases)\}.*\\end\{(?P=kind)\}\s*\$*", re.DOTALL
)


def check_options(options: ImportOptions) -> None:
    """Refuse options that do not go with the format, before any file is read."""
    importer = IMPORTERS.get(options.format)
    if options.strict and options.skip_bad:
        raise UsageError(
            "Both --strict and --skip-bad were given.",
            next_step="The one stops at a bad row, the other passes it over: give one of them.",
        )
    if options.protocol != AUTO:
        PROTOCOLS.get(options.protocol)
    for name in options.columns:
        if name not in importer.column_fields:
            raise UsageError(
                f"Format '{options.format}' takes no --column for '{name}'.",
                next_step=f"It takes one for: {', '.join(importer.column_fields) or 'nothing'}.",
            )
    if options.requests is not None and not importer.takes_requests:
        takers = ", ".join(i.name for i in IMPORTERS if i.takes_requests)
        raise UsageError(
            f"Format '{options.format}' takes no --requests.",
            next_step=f"Leave it out: it is for the format {takers}.",
        )
    if importer.check is not None:
        importer.check(options)


def read_rows(path: Path, options: ImportOptions) -> tuple[list[Imported | BadRow], list[str]]:
    """The rows of a file, each with a generator, a benchmark and a question, and what to tell."""
    notes: list[str] = []
    golds = _GoldAnswers(
        "Name the column that holds the answer alone (--column answer=COLUMN), or none (--column "
        "answer=) with the answers in --problems FILE."
    )
    rows = IMPORTERS.get(options.format).read(path, options, notes.append)
    if options.strict:
        rows = _none_unreadable(rows)
    known = None if options.problems is None else _KnownProblems(options.problems)
    notes += [] if known is None else known.notes

    def complete(row: Imported) -> Iterator[Imported]:
        row = replace(row, answer=golds.alone(row.answer, row.where))
        yield row if known is None else known.joined(row)

    found, renamed = named_rows(
        each(rows, complete, skip_bad=options.skip_bad),
        source=str(path),
        generator=options.generator,
        benchmark=options.benchmark,
        stem=Path(plain_name(path)).stem,
    )
    if not options.skip_bad:
        _check_unreadable(found, path)
    return found, [*notes, *golds.notes(str(path)), *renamed]


def _none_unreadable(rows: Iterable[Imported | BadRow]) -> Iterator[Imported | BadRow]:
    """The rows, up to an error at the first that cannot be read."""
    for row in rows:
        if isinstance(row, BadRow) and row.unreadable:
            raise DataError(row.why, next_step=_SET_ASIDE)
        yield row


def _check_unreadable(rows: Sequence[Imported | BadRow], path: Path) -> None:
    """Refuse a file of which more is broken than not: it is hardly what it is taken for."""
    bad = [row for row in rows if isinstance(row, BadRow) and row.unreadable]
    if 2 * len(bad) > len(rows):
        count = "None" if len(bad) == len(rows) else f"Only {len(rows) - len(bad)}"
        raise DataError(
            f"{count} of the {len(rows)} rows of {path} can be read; the first that cannot: "
            f"{bad[0].why}",
            next_step="Check --format and the file; --skip-bad takes the rest all the same.",
        )


def named_rows(
    rows: Iterable[Imported | BadRow],
    *,
    source: str,
    generator: str | None,
    benchmark: str | None,
    stem: str,
) -> tuple[list[Imported | BadRow], list[str]]:
    """Fill in `generator` and `benchmark`, or rename the one that the file names itself.

    Without either the benchmark is called `stem`; a generator has to be named. Returns also what
    was renamed.
    """
    found = list(rows)
    good = [row for row in found if isinstance(row, Imported)]
    notes: list[str] = []
    for name, option in (("generator", generator), ("benchmark", benchmark)):
        names = dict.fromkeys(getattr(row, name) for row in good)
        own = [own for own in names if own is not None]
        if option is not None and own not in ([], [option]):
            if len(names) > 1:
                several = ", ".join(f"'{shown(own)}'" for own in own[:5]) + ", ..." * (len(own) > 5)
                rest = " and leaves others without" if None in names else ""
                raise UsageError(
                    f"{source} names the {name} itself ({several}){rest}, so --{name} would mix "
                    "them up.",
                    next_step=f"Leave --{name} out, or say that the file has none: --column "
                    f"{name}=",
                )
            notes.append(f"{source}: the {name} '{shown(own[0])}' is called '{option}'")
    for row in good:
        if generator is None and row.generator is None:
            raise unknown_generator(row.where)
    named = [
        row
        if isinstance(row, BadRow)
        else replace(
            row, generator=generator or row.generator, benchmark=benchmark or row.benchmark or stem
        )
        for row in found
    ]
    return named, notes


@dataclass(frozen=True, slots=True)
class _GoldAnswers:
    """Takes the answer out of every gold text of a source, and counts where it had to look."""

    next_step: str  # for a solution that does not say where its answer is
    _taken: Counter[str] = field(default_factory=Counter[str])

    def alone(self, gold: str | None, where: str) -> str | None:
        """The answer of a gold text; None where there is none."""
        text = (gold or "").strip()
        _, mark, after = text.rpartition(_MARK)
        after = after.strip()
        if mark and after and "\n" not in after:
            self._taken[f"what follows the last '{_MARK}'"] += 1
            return after
        if not mark and "\n" not in text:
            return gold
        if (box := find_boxed(text)) is not None:
            self._taken["the last \\boxed{}"] += 1
            return box.content
        if _ARRAY.fullmatch(text):
            return gold
        what = "the gold answer reads like a worked solution, and nothing in it says which part is"
        raise fault(where, f"{what} the answer", self.next_step)

    def notes(self, source: str) -> list[str]:
        return [
            f"{source}: {count} gold answers are worked solutions, of which {taken} is taken"
            for taken, count in self._taken.items()
        ]


class _KnownProblems:
    """Problems with their gold answers from a file of their own, to be joined with rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        golds = _GoldAnswers("Write the answer alone.")
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
            raise fault(
                row.where,
                f"the gold answer is not that of problem '{shown(problem.id)}' in {self.path}",
                "Correct one of them, or take none from the rows (--column answer=).",
            )
        answer = answers[0] if answers else None
        return replace(row, problem_id=problem.id, question=problem.question, answer=answer)

    def _problem_of(self, row: Imported) -> Problem:
        """By id; a row that has none is known by its question."""
        if row.problem_id is None:
            same = self._by_question.get(_plain(row.question or ""), [])
            if len(same) == 1:
                return same[0]
            count = "no problem" if not same else f"{len(same)} problems"
            why = f"{self.path} has {count} with this question"
        elif row.problem_id not in self._by_id:
            why = f"{self.path} has no problem '{shown(row.problem_id)}'"
        else:
            problem = self._by_id[row.problem_id]
            # A prompt may say more than the question, but it has to hold it.
            if row.question is None or _plain(problem.question) in _plain(row.question):
                return problem
            why = f"the question is not that of problem '{problem.id}' in {self.path}"
        raise fault(
            row.where,
            why,
            "Give the file with the problems that were asked, name the column with their ids "
            "(--column id=COLUMN), or use --skip-bad.",
        )


def _plain(text: str) -> str:
    return " ".join(text.split())
