"""The formats by name, and one way to read a file of any of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from divtok.errors import UsageError, did_you_mean
from divtok.importers import inspect_log, lm_eval, openai_batch
from divtok.importers.columns import FIELDS
from divtok.importers.gold import GoldAnswers
from divtok.importers.imported import BadRow, Imported
from divtok.importers.inspect_log import read_inspect
from divtok.importers.jsonl import read_jsonl
from divtok.importers.lines import changed
from divtok.importers.lm_eval import read_lm_eval
from divtok.importers.naming import KnownProblems, named_rows
from divtok.importers.openai_batch import read_openai_batch
from divtok.protocols.prompts import PROTOCOLS

Rows = Iterator[Imported | BadRow]
Tell = Callable[[str], None]  # takes what the user should know about the reading


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How files are to be read; the same for all files of one command."""

    format: str
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # field -> column, or ""
    generator: str | None = None
    benchmark: str | None = None
    protocol: str = "cot"
    problems: Path | None = None
    requests: Path | None = None
    skip_bad: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    summary: str
    column_fields: tuple[str, ...]  # what --column may name
    read: Callable[[Path, ImportOptions, Tell], Rows]


FORMATS: dict[str, Format] = {
    "jsonl": Format(
        "One JSON object a line.",
        FIELDS,
        lambda path, given, tell: read_jsonl(
            path,
            columns=given.columns,
            joined=given.problems is not None,
            skip_bad=given.skip_bad,
            tell=tell,
        ),
    ),
    "lm-eval": Format(
        "samples_*.jsonl of lm-eval, written with --log_samples.",
        lm_eval.COLUMN_FIELDS,
        lambda path, given, tell: read_lm_eval(
            path, columns=given.columns, skip_bad=given.skip_bad, tell=tell
        ),
    ),
    "inspect": Format(
        ".eval and .json logs of Inspect.",
        inspect_log.COLUMN_FIELDS,
        lambda path, given, _: read_inspect(path, columns=given.columns, skip_bad=given.skip_bad),
    ),
    "openai-batch": Format(
        "The output file of an OpenAI batch, with its request file.",
        openai_batch.COLUMN_FIELDS,
        lambda path, given, _: read_openai_batch(
            path, columns=given.columns, requests=given.requests, skip_bad=given.skip_bad
        ),
    ),
}


def check_options(options: ImportOptions) -> None:
    """Refuse options that do not go with the format, before any file is read."""
    _check_known("format", options.format, FORMATS)
    _check_known("protocol", options.protocol, PROTOCOLS)
    allowed = FORMATS[options.format].column_fields
    for field_name in options.columns:
        if field_name not in allowed:
            raise UsageError(
                f"Format '{options.format}' takes no --column for '{field_name}'.",
                next_step=f"It takes one for: {', '.join(allowed)}.",
            )
    if options.format == "openai-batch":
        _check_batch(options)
    elif options.requests is not None:
        raise UsageError(
            f"Format '{options.format}' takes no --requests.",
            next_step="Leave it away: only openai-batch has a request file.",
        )


def _check_known(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise UsageError(f"Unknown {what} '{name}'.", next_step=did_you_mean(name, known))


def _check_batch(options: ImportOptions) -> None:
    if options.requests is None and options.problems is None:
        raise UsageError(
            "The output of a batch does not hold the questions.",
            next_step="Give the request file with --requests FILE, or the problems with "
            "--problems FILE.",
        )
    if options.columns.get("id") not in (None, "", "custom_id"):
        raise UsageError(
            "The ids of a batch are its custom ids.",
            next_step="Give --column id= to tell problems by their question, or leave it away.",
        )
    if options.columns.get("id") == "" and options.requests is None:
        raise UsageError(
            "Without ids the questions have to be known.",
            next_step="Give the request file with --requests FILE.",
        )


def read_rows(path: Path, options: ImportOptions) -> tuple[list[Imported | BadRow], list[str]]:
    """The rows of a file, each with a generator, a benchmark and a question, and what to tell."""
    notes: list[str] = []
    golds = GoldAnswers(
        "Name the column that holds the answer alone (--column answer=COLUMN), or none (--column "
        "answer=) with the answers in --problems FILE."
    )

    def with_gold(row: Imported) -> Imported:
        return replace(row, answer=golds.alone(row.answer, row.where))

    rows = FORMATS[options.format].read(path, options, notes.append)
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
