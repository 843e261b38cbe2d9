"""The verb import: trajectories that other tools made, into a run."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divtok.cli import completion
from divtok.cli.help import Verb
from divtok.cli.options import (
    FamilyOption,
    JsonOption,
    NameOption,
    OutOption,
    ScorerOption,
    VerdictOption,
    grading,
    run_folder,
)
from divtok.cli.piped import piped
from divtok.cli.printing import print_json
from divtok.errors import EXIT_PARTIAL, UsageError
from divtok.importers import IMPORTERS, ImportOptions
from divtok.importers.answers import AUTO
from divtok.importers.columns import FIELDS, parse_columns
from divtok.progress import grouped, say
from divtok.protocols.protocol import PROTOCOLS
from divtok.registry import Registry
from divtok.screen import put, visible
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.stages.import_files import ImportedFile


class ImportCommand(Verb):
    """Its help lists the names there are, for which plug-ins are asked no earlier than that."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        listed: dict[str | None, Registry[Any]] = {"file_format": IMPORTERS, "protocol": PROTOCOLS}
        params: list[Any] = [param for param in self.params if param.name in listed]
        for param in params:
            names = ", ".join(sorted(listed[param.name].names()))
            param.help = f"{param.help} Names: {names}."
        super().format_help(ctx, formatter)


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of one format, also packed (.gz, .zst), patterns, folders, - for standard "
            "input.",
        ),
    ],
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="What wrote the files; auto: what they look like.",
            autocompletion=completion.formats,
        ),
    ] = AUTO,
    out: OutOption = None,
    name: NameOption = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=COLUMN",
            help="Where a field is, as in question=doc.text; an empty column: nowhere. Fields: "
            f"{', '.join(FIELDS)}.",
        ),
    ] = None,
    problems: Annotated[
        Path | None, typer.Option(help="JSONL with id, problem and answer, joined by id.")
    ] = None,
    requests: Annotated[Path | None, typer.Option(help="Request file of an OpenAI batch.")] = None,
    generator: Annotated[str | None, typer.Option(help="Model that wrote the responses.")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Name of the set of problems.")] = None,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How answers are given, or a file with the words that asked for them; auto: what "
            "finds them in most responses.",
            autocompletion=completion.protocols,
        ),
    ] = AUTO,
    verdict: VerdictOption = None,
    scorer: ScorerOption = None,
    family: FamilyOption = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Set every bad row aside instead of stopping, and exit with 0."
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Stop also at a line that cannot be read, as one that was cut off."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring trajectories that other tools made into a run, to be scored.

    The same command again changes nothing; other files add to the run. Lines that cannot be read
    are set aside and named, and the command exits with 3; any other bad row stops it.
    """
    from divtok.stages.import_files import import_files

    if name is None and out is None:
        raise UsageError("The import needs a run.", next_step="Give --name NAME or --out FOLDER.")
    for text in (generator, benchmark):
        if text is not None and not text.strip():
            raise UsageError("--generator or --benchmark is empty.", next_step="Give a name.")
    with piped([*files, *(f for f in (problems, requests) if f is not None)]) as once:
        options = ImportOptions(
            format=file_format,
            columns=parse_columns(column or []),
            generator=generator,
            benchmark=benchmark,
            protocol=protocol,
            problems=None if problems is None else once.file(problems),
            requests=None if requests is None else once.file(requests),
            skip_bad=skip_bad,
            strict=strict,
        )
        read = [once.file(file) for file in files]
        with Run.begun(run_folder(name, out, default="")) as store, store.lock():
            found = import_files(
                store, read, options, family=family, grading=grading(verdict, scorer)
            )
        found = [replace(file, notes=[once.plain(note) for note in file.notes]) for file in found]
        _say_notes(store, found)
    summary = _summary(store)
    if as_json:
        print_json({"files": [asdict(file) for file in found], "run": summary})
    else:
        _print(store, found, summary)
    if not skip_bad and any(file.set_aside for file in found):
        raise typer.Exit(EXIT_PARTIAL)


def _summary(store: Run) -> dict[str, Any]:
    """What the run holds now."""
    trajectories, problems = store.trajectories.read(), store.problems.read()
    return {
        "trajectories": len(trajectories),
        "problems": len(problems),
        "gold_answers": sum(problem.answer is not None for problem in problems),
        "generators": dict(Counter(t.generator for t in trajectories)),
        "benchmarks": dict(Counter(t.benchmark for t in trajectories)),
        "finish_reasons": dict(Counter(t.finish_reason for t in trajectories)),
        "protocol": trajectories[0].protocol if trajectories else None,
        "verdicts": _verdict_counts(store),
    }


def _verdict_counts(store: Run) -> dict[str, dict[str, int]]:
    """scorer -> verdict -> how many, in the order of the files."""
    counts: dict[str, Counter[str]] = {}
    for verdict in store.verdicts.read():
        counts.setdefault(verdict.scorer, Counter())[verdict.verdict.value] += 1
    return {scorer: dict(found) for scorer, found in counts.items()}


def _say_notes(store: Run, found: list[ImportedFile]) -> None:
    from divtok.stages.bad_rows import BAD_ROWS_FILE, bad_rows

    notes = dict.fromkeys(note for file in found for note in file.notes)
    for note in grouped(notes):
        say(f"import: {visible(note)}")
    aside = [file for file in found if file.set_aside]
    reasons = bad_rows(store) if aside else []
    for file in aside:
        rows = [json.loads(line) for name, line in reasons if name == file.name]
        messages = [f"{row['where'].rpartition(', ')[2]}: {_reason(row)}" for row in rows]
        listed = "; ".join(grouped(messages, numbers_alike=True))
        say(
            f"import: {file.set_aside} of {file.rows} rows of {visible(file.name)} were set "
            f"aside: {visible(listed)}"
        )
    if aside:
        say(f"import: the reasons are in {store.path / BAD_ROWS_FILE}")


def _reason(row: dict[str, str]) -> str:
    """Why a row was set aside, without the place it is at."""
    return row["why"].removeprefix(f"{row['where']}: ").rstrip(".")


def _print(store: Run, found: list[ImportedFile], summary: dict[str, Any]) -> None:
    def listed(counts: dict[str, int]) -> str:
        return ", ".join(f"{visible(name)} ({count})" for name, count in counts.items())

    for file in found:
        if file.already:
            put(f"{visible(file.name)}: is there already, nothing changed")
            continue
        parts = [f"{file.rows} rows", f"{file.trajectories} trajectories"]
        parts += [f"{file.repeated} there already"] if file.repeated else []
        parts += [f"{file.set_aside} set aside"] if file.set_aside else []
        put(f"{visible(file.name)}: {', '.join(parts)}")
    known, problems = summary["gold_answers"], summary["problems"]
    put(f"run: {store.path}")
    put(f"trajectories: {summary['trajectories']}, ended by {listed(summary['finish_reasons'])}")
    put(f"problems: {problems}, of which {known} have a gold answer")
    put(f"benchmarks: {listed(summary['benchmarks'])}")
    put(f"generators: {listed(summary['generators'])}")
    for scorer, counts in summary["verdicts"].items():
        put(f"verdicts of '{visible(scorer)}': {listed(counts)}")
    if summary["verdicts"] and not known:
        put("no gold answers: --verdict theirs takes these verdicts as grades")
    put(f"next: divtok score {shlex.quote(str(store.path))} --pair P Q")
