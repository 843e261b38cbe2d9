"""Files of other tools -> problems and trajectories of a run, and the run's config.

Files are read and checked before the first of them is stored. Each is stored whole or not at all:
its trajectories are one shard, and they are what makes it a part of the run. Whatever a stopped
import left before that is put right by the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from divtok.config.made_with import libraries
from divtok.config.run import RunConfig, parse_config, to_yaml
from divtok.config.tree import override_tree
from divtok.config.wordings import as_section
from divtok.errors import DataError, StoreError
from divtok.importers import (
    BadRow,
    Before,
    Imported,
    ImportOptions,
    Records,
    check_options,
    read_rows,
    to_records,
)
from divtok.importers.answers import AUTO, best_protocol
from divtok.importers.found import Found, found_files
from divtok.importers.importer import NothingToReadError
from divtok.protocols.wording import Wording
from divtok.records import Problem, Trajectory
from divtok.stages.bad_rows import FILE_SECTION, file_sections, write_bad_rows
from divtok.stages.import_identity import content_of, identity_of, names_of, packed_as
from divtok.stages.import_words import check_words, with_words
from divtok.stages.stored import DEFAULT_FAMILY, stored_config
from divtok.store.run import Run, check_or_write_manifest
from divtok.store.sections import check_section
from divtok.strict_yaml import MAX_YAML_BYTES

_RUN_SECTION = "imported"
_MOST_NAMED = 3  # places of rows in one line


_Rows = tuple[list[Imported | BadRow], list[str]]  # with what to tell


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """What one file brought. `already` means that it was a part of the run before."""

    name: str
    rows: int
    trajectories: int
    repeated: int
    set_aside: int
    already: bool = False
    notes: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _New:
    """A file that is not in the run yet, read and checked."""

    name: str
    section: dict[str, Any]  # of the manifest
    records: Records
    problems: list[Problem]  # of the whole run, these included
    notes: list[str]


def import_files(
    run: Run,
    files: Sequence[Path],
    options: ImportOptions,
    *,
    family: str | None = None,
    grading: Sequence[str] = (),
) -> list[ImportedFile]:
    """Add files to a run, in this order. Needs the run's lock.

    A file that is there already is left alone, and refused if it has changed; of files with the
    same content, packed or not, the first counts. `family` gives the pair that reads the
    trajectories unless another is named; left out, it stays as it is. `grading` are overrides of
    the run's config, as in "grade.verdicts=theirs".
    """
    found = found_files(files, options.format)
    options, words = with_words(replace(options, format=found.format))
    files = found.files
    check_options(options)
    names = names_of(files)
    _check_run(run)
    _forget_unfinished(run)
    trajectories = run.trajectories.read()
    identities = {file: identity_of(file, options) for file in files}
    contents = {file: content_of(file, identities[file]) for file in files}
    there = {f: _stored_as(run, names[f], identities[f], contents[f]) for f in files}
    copies = _copies(there, contents)
    files = [file for file in files if file not in copies]
    missing = [file for file in files if there[file] is None]
    read, found_nothing = _all_rows(missing, options, found, most=len(files))
    files = [file for file in files if file in read or there[file] is not None]
    found_nothing += [
        f"left out: {names[copy]} has the same content as {names[of]}"
        for copy, of in copies.items()
        if of not in files
    ]
    options, chosen = _with_protocol(run, trajectories, options, read, names)
    check_words(run, trajectories, words)
    check_section(run, trajectories, _RUN_SECTION, {"protocol": options.protocol})
    before = _before(run, trajectories)
    done: list[ImportedFile | _New] = []
    for file in files:
        stored = there[file]
        if stored is not None:
            done.append(stored)
            continue
        identity = {**identities[file], **packed_as(identities[file], contents[file])}
        new = _new(file, names[file], options, identity, before, read.pop(file))
        done.append(new)
        before = _after(before, new)
    done[0].notes[:0] = [*found.notes, *found_nothing, *chosen]
    config = _config_text(run, options, words, family, grading, [t for t, _ in before.trajectories])
    others = (f for f in (options.problems, options.requests) if f is not None)
    named = {**{file: names[file] for file in files}, **{file: file.name for file in others}}
    if any(isinstance(item, _New) for item in done):
        run.note_maker(run.trajectories.layout.name, libraries())
    reports = [_store(run, item, named) if isinstance(item, _New) else item for item in done]
    run.write_config(config)
    by_file = dict(zip(files, reports, strict=True))
    again = [_copy(by_file[of], names[copy]) for copy, of in copies.items() if of in by_file]
    return [*reports, *again]


def _copies(
    there: Mapping[Path, ImportedFile | None], contents: Mapping[Path, str]
) -> dict[Path, Path]:
    """Files that are not in the run, with the one of the same command that has the same content."""
    first: dict[str, Path] = {}
    for file in sorted(there, key=lambda file: there[file] is None):
        first.setdefault(contents[file], file)
    pairs = {file: first[contents[file]] for file in there if there[file] is None}
    return {file: of for file, of in pairs.items() if of != file}


def _copy(report: ImportedFile, name: str) -> ImportedFile:
    """What is said of a file with the same content under another name: it adds nothing."""
    note = f"{name}: the same content was imported as {report.name}"
    return replace(report, name=name, already=True, notes=[note])


def _all_rows(
    files: Sequence[Path], options: ImportOptions, found: Found, *, most: int
) -> tuple[dict[Path, _Rows], list[str]]:
    """The rows of every file; of a folder, files without responses are left out, with a note.

    Not all of the `most` files of a command can be left out.
    """
    read: dict[Path, _Rows] = {}
    notes: list[str] = []
    for file in files:
        try:
            read[file] = read_rows(file, options)
        except NothingToReadError as error:
            notes.append(f"left out: {error.what}")
            if file not in found.in_folder or len(notes) == most:
                raise
    return read, notes


def _check_run(run: Run) -> None:
    """Refuse a run whose trajectories were generated: it could not go on generating."""
    stored = run.manifest() or {}
    if _RUN_SECTION not in stored and ("generate" in stored or run.trajectories.keys()):
        raise StoreError(
            f"The trajectories of {run.path} were not imported.",
            next_step="Import into a run of its own (--name, --out).",
        )


def _with_protocol(
    run: Run,
    trajectories: Sequence[Trajectory],
    options: ImportOptions,
    read: Mapping[Path, _Rows],
    names: Mapping[Path, str],
) -> tuple[ImportOptions, list[str]]:
    """The options with the protocol that finds the answers, and what to say of it.

    A run has one, so that files which are added later are read by that of the first; those whose
    answers are given in another way are told.
    """
    if options.protocol != AUTO:
        return options, []
    stored = (run.manifest() or {}).get(_RUN_SECTION)
    kept = stored["protocol"] if stored is not None and trajectories else None
    rows = {
        file: [row for row in found if isinstance(row, Imported)]
        for file, (found, _) in read.items()
    }

    def best(rows: Sequence[Imported], kept: str | None) -> tuple[str, str | None]:
        golds = [row.answer for row in rows if row.answer is not None]
        return best_protocol([row.response for row in rows], golds=golds, kept=kept)

    protocol, said = best([row for own in rows.values() for row in own], kept)
    notes = [] if said is None else [said]
    for file, own in rows.items() if len(rows) > 1 else ():
        _, said = best(own, protocol)
        notes += [] if said is None else [f"{names[file]}: {said}"]
    return replace(options, protocol=protocol), notes


def _forget_unfinished(run: Run) -> None:
    """Drop the section of a file whose trajectories were never stored, with verdicts and labels."""
    stored = run.manifest()
    if stored is None:
        return
    keys = {key for (key,) in run.trajectories.keys()}  # noqa: SIM118 (a table is not a dict)
    rows = len(keys)
    if any(key not in keys for key, _ in run.verdicts.keys()):  # noqa: SIM118
        run.verdicts.replace([v for v in run.verdicts.read() if v.key in keys])
    if any(key not in keys for (key,) in run.step_labels.keys()):  # noqa: SIM118
        run.step_labels.replace([s for s in run.step_labels.read() if s.key in keys])
    kept = {
        name: section
        for name, section in stored.items()
        if not name.startswith(FILE_SECTION) or section["after"] + section["trajectories"] <= rows
    }
    if kept != stored:
        run.write_manifest(kept)


def _stored_as(
    run: Run, name: str, identity: Mapping[str, Any], content: str
) -> ImportedFile | None:
    """What the file brought when it was imported; None where it never was.

    A copy under another name is the same file: its samples must not be counted twice.
    """
    sections = file_sections(run)
    # Packed files that earlier versions imported are known by their own bytes alone.
    same = (content, identity["sha256"])
    copies = [n for n, s in sections.items() if s.get("content") == content or s["sha256"] in same]
    known = name if name in sections else next(iter(copies), None)
    if known is None:
        return None
    section = sections[known]
    given = {**section, **identity}
    if known != name:
        given["sha256"] = section["sha256"]  # a packed copy has other bytes
    check_or_write_manifest(run, given, section=FILE_SECTION + known)
    found = ImportedFile(
        known,
        section["rows"],
        section["trajectories"],
        section["repeated"],
        section["set_aside"],
        already=True,
    )
    return found if known == name else _copy(found, name)


def _before(run: Run, trajectories: Sequence[Trajectory]) -> Before:
    """What the run holds, with the names of the files it came from.

    Problems without a trajectory are what a stopped import left, and not a part of the run.
    """
    sources: list[str] = []
    for name, section in file_sections(run).items():
        sources += [f"{name} (imported before)"] * section["trajectories"]
    if len(sources) != len(trajectories):
        raise StoreError(
            f"{run.path} holds {len(trajectories)} trajectories, but its files brought "
            f"{len(sources)}.",
            next_step="Import the files into another run.",
        )
    placed = list(zip(trajectories, sources, strict=True))
    first = {(t.benchmark, t.problem_id): where for t, where in reversed(placed)}
    problems = [p for p in run.problems.read() if (p.benchmark, p.id) in first]
    placed_problems = [(p, first[p.benchmark, p.id]) for p in problems]
    return Before(placed_problems, placed, run.verdicts.read(), run.step_labels.read())


def _new(
    file: Path,
    name: str,
    options: ImportOptions,
    identity: dict[str, Any],
    before: Before,
    read: _Rows,
) -> _New:
    rows, notes = read
    records = to_records(rows, protocol=options.protocol, before=before, skip_bad=options.skip_bad)
    counts = {
        "rows": len(rows),
        "trajectories": len(records.trajectories),
        "repeated": records.repeated,
        "set_aside": len(records.bad),
        "after": len(before.trajectories),
    }
    if not records.trajectories and not records.repeated:
        raise DataError(
            f"Not one row of {file} can be used; the first: {records.bad[0].why}",
            next_step="Check --format and --column.",
        )
    newer = {(p.benchmark, p.id): p for p in records.problems}
    there = {(p.benchmark, p.id): p for p, _ in before.problems}
    filled = len(newer.keys() & there.keys())
    if filled:
        notes.append(f"{name}: gold answers of {filled} earlier problems are now known")
    if records.again:
        further = records.repeated < len(records.again)
        notes.append(f"{name}: {_repeats(records.again, further=further)}")
    if records.doubled:
        notes.append(
            f"{name}: {records.doubled} of {len(rows)} rows have the very response that "
            "another file has to the same question by the same generator, and count beside it; if "
            "this file holds the rows of that one again, import it alone into a new run"
        )
    return _New(name, {**identity, **counts}, records, [*(there | newer).values()], notes)


def _repeats(again: Sequence[tuple[str, str]], *, further: bool) -> str:
    """Which rows say what others of the file say, in one line."""
    named = [tuple(place.rpartition(", ")[2] for place in pair) for pair in again]
    listed = ", ".join(f"{where} repeats {first}" for where, first in named[:_MOST_NAMED])
    more = len(named) - _MOST_NAMED
    rest = f" and {more} more rows do so" if more > 0 else ""
    if not further:
        return f"{listed}{rest}, word for word, which adds nothing"
    return (
        f"{listed}{rest}, word for word, which counts as a further sample: take out what was "
        "logged twice"
    )


def _after(before: Before, new: _New) -> Before:
    """What there will be once the file is stored."""
    added = list(zip(new.records.trajectories, new.records.places, strict=True))
    places = {(t.benchmark, t.problem_id): where for t, where in reversed(added)}
    places |= {(p.benchmark, p.id): where for p, where in before.problems}
    problems = [(p, places[p.benchmark, p.id]) for p in new.problems]
    verdicts = [*before.verdicts, *new.records.verdicts]
    labels = [*before.labels, *new.records.labels]
    return Before(problems, [*before.trajectories, *added], verdicts, labels)


def _store(run: Run, new: _New, read: Mapping[Path, str]) -> ImportedFile:
    """The trajectories come last: they decide whether the file is there."""
    write_bad_rows(run, new.name, new.records.bad, read)
    run.problems.replace(new.problems)
    if new.records.verdicts:
        run.verdicts.append(new.records.verdicts)
    if new.records.labels:
        run.step_labels.append(new.records.labels)
    run.write_manifest({**(run.manifest() or {}), FILE_SECTION + new.name: new.section})
    run.trajectories.append(new.records.trajectories)
    return ImportedFile(
        new.name,
        new.section["rows"],
        new.section["trajectories"],
        new.section["repeated"],
        new.section["set_aside"],
        notes=new.notes,
    )


def _config_text(
    run: Run,
    options: ImportOptions,
    words: Wording | None,
    family: str | None,
    grading: Sequence[str],
    trajectories: Sequence[Trajectory],
) -> str:
    """The run's config, with the names of everything that is in it."""
    if run.config_text() is None:
        asked: dict[str, Any] = {"protocol": options.protocol}
        if words is not None:
            asked = {"protocol": words.name, "wordings": as_section(words)}
        tree = {"family": family or DEFAULT_FAMILY, **asked}
        config = parse_config(override_tree(tree, grading), source="the options")
    else:
        config = stored_config(run, grading)
        if family not in (None, config.family):
            # A pair and a theta that were written out belong to the family of before.
            pair = ["trace.reader=null", "trace.auxiliary=null"]
            theta = ["score.theta=null", "score.without_theta=false"]
            config = stored_config(run, [f"family={family}", *pair, *theta, *grading])
    text = to_yaml(_named(config, trajectories))
    if len(text.encode()) > MAX_YAML_BYTES:
        raise DataError(
            f"The names of generators and benchmarks make a config of over {MAX_YAML_BYTES} bytes.",
            next_step="Check what --column names as generator and benchmark.",
        )
    return text


def _named(config: RunConfig, trajectories: Sequence[Trajectory]) -> RunConfig:
    return config.model_copy(
        update={
            "generators": list(dict.fromkeys(t.generator for t in trajectories)),
            "benchmarks": list(dict.fromkeys(t.benchmark for t in trajectories)),
            "generate": config.generate.model_copy(update={"engine": "imported"}),
        }
    )
