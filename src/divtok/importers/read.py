"""One way to read a file of any format: options checked first, then rows with all their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from divtok.errors import UsageError
from divtok.importers.gold import GoldAnswers
from divtok.importers.imported import BadRow, Imported
from divtok.importers.importer import IMPORTERS, ImportOptions
from divtok.importers.lines import changed
from divtok.importers.naming import KnownProblems, named_rows
from divtok.protocols.protocol import PROTOCOLS


def check_options(options: ImportOptions) -> None:
    """Refuse options that do not go with the format, before any file is read."""
    importer = IMPORTERS.get(options.format)
    PROTOCOLS.get(options.protocol)
    for field in options.columns:
        if field not in importer.column_fields:
            raise UsageError(
                f"Format '{options.format}' takes no --column for '{field}'.",
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
    golds = GoldAnswers(
        "Name the column that holds the answer alone (--column answer=COLUMN), or none (--column "
        "answer=) with the answers in --problems FILE."
    )

    def with_gold(row: Imported) -> Imported:
        return replace(row, answer=golds.alone(row.answer, row.where))

    rows = IMPORTERS.get(options.format).read(path, options, notes.append)
    rows = changed(rows, with_gold, skip_bad=options.skip_bad)
    if options.problems is not None:
        known = KnownProblems(options.problems)
        notes += known.notes
        rows = changed(rows, known.joined, skip_bad=options.skip_bad)
    named = named_rows(
        rows,
        source=str(path),
        generator=options.generator,
        benchmark=options.benchmark,
        stem=path.stem,
    )
    return named.rows, [*notes, *golds.notes(str(path)), *named.notes]
