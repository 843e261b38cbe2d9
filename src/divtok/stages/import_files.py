"""Files of other tools -> problems and trajectories of a run, and the run's config.

Files are read and checked before the first of them is stored. Each is stored whole or not at all:
its trajectories are one shard, and they are what makes it a part of the run. Whatever a stopped
import left before that is put right by the next one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divtok.config.made_with import libraries
from divtok.config.run import RunConfig, load_config, to_yaml
from divtok.errors import DataError, StoreError, UsageError
from divtok.importers import Before, ImportOptions, Records, check_options, read_rows, to_records
from divtok.records import Problem, Trajectory
from divtok.stages.stored import stored_config
from divtok.store import atomic
from divtok.store.run import Run, check_or_write_manifest
from divtok.store.sections import check_section
from divtok.strict_yaml import MAX_YAML_BYTES

BAD_ROWS_FILE = "bad_rows.jsonl"
DEFAULT_FAMILY = "blackbox"

_RUN_SECTION = "imported"
_FILE_SECTION = "import "  # and the file's name


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
    run: Run, files: Sequence[Path], options: ImportOptions, *, family: str | None = None
) -> list[ImportedFile]:
    """Add files to a run, in this order. Needs the run's lock.

    A file that is there already is left alone, and refused if it has changed. `family` gives the
    pair that reads the trajectories unless another is named; left out, it stays as it is.
    """
    check_options(options)
    _check_files(files)
    _check_run(run)
    _forget_unfinished(run)
    trajectories = run.trajectories.read()
    check_section(run, trajectories, _RUN_SECTION, {"protocol": options.protocol})
    before = _before(run, trajectories)
    done: list[ImportedFile | _New] = []
    for file in files:
        identity = _identity(file, options)
        there = _stored_as(run, file.name, identity)
        if there is not None:
            done.append(there)
            continue
        new = _read(file, options, identity, before)
        done.append(new)
        before = _after(before, new)
    config = _config_text(run, options, family, [t for t, _ in before.trajectories])
    read = [*files, *(f for f in (options.problems, options.requests) if f is not None)]
    if any(isinstance(item, _New) for item in done):
        run.note_maker(run.trajectories.layout.name, libraries())
    reports = [_store(run, item, read) if isinstance(item, _New) else item for item in done]
    run.write_config(config)
    return reports


def _check_files(files: Sequence[Path]) -> None:
    names = [file.name for file in files]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"Two files are called '{name}', and a run tells its files by name.",
                next_step="Rename one of them.",
            )
    for file in files:
        if not file.is_file():
            raise DataError(f"There is no file {file}.", next_step="Check the path.")


def _check_run(run: Run) -> None:
    """Refuse a run whose trajectories were generated: it could not go on generating."""
    stored = run.manifest() or {}
    if _RUN_SECTION not in stored and ("generate" in stored or run.trajectories.keys()):
        raise StoreError(
            f"The trajectories of {run.path} were not imported.",
            next_step="Import into a run of its own (--name, --out).",
        )


def _forget_unfinished(run: Run) -> None:
    """Drop the section of a file whose trajectories were never stored."""
    stored = run.manifest()
    if stored is None:
        return
    rows = len(run.trajectories.keys())
    kept = {
        name: section
        for name, section in stored.items()
        if not name.startswith(_FILE_SECTION) or section["after"] + section["trajectories"] <= rows
    }
    if kept != stored:
        run.write_manifest(kept)


def _identity(file: Path, options: ImportOptions) -> dict[str, Any]:
    """What the rows of a file depend on."""
    return {
        "sha256": _digest(file),
        "format": options.format,
        "columns": dict(options.columns),
        "generator": options.generator,
        "benchmark": options.benchmark,
        "problems": None if options.problems is None else _digest(options.problems),
        "requests": None if options.requests is None else _digest(options.requests),
    }


def _stored_as(run: Run, name: str, identity: Mapping[str, Any]) -> ImportedFile | None:
    """What the file brought when it was imported; None where it never was.

    A copy under another name is the same file: its samples must not be counted twice.
    """
    sections = _file_sections(run)
    copies = [n for n, section in sections.items() if section["sha256"] == identity["sha256"]]
    known = name if name in sections else next(iter(copies), None)
    if known is None:
        return None
    section = sections[known]
    check_or_write_manifest(run, {**section, **identity}, section=_FILE_SECTION + known)
    return ImportedFile(
        name,
        section["rows"],
        section["trajectories"],
        section["repeated"],
        section["set_aside"],
        already=True,
        notes=[] if known == name else [f"{name}: the same content was imported as {known}"],
    )


def _file_sections(run: Run) -> dict[str, dict[str, Any]]:
    """name -> section, in the order of the imports."""
    stored = run.manifest() or {}
    found = {n: s for n, s in stored.items() if n.startswith(_FILE_SECTION)}
    ordered = sorted(found, key=lambda name: found[name]["after"])
    return {name.removeprefix(_FILE_SECTION): found[name] for name in ordered}


def _before(run: Run, trajectories: Sequence[Trajectory]) -> Before:
    """What the run holds, with the names of the files it came from.

    Problems without a trajectory are what a stopped import left, and not a part of the run.
    """
    sources: list[str] = []
    for name, section in _file_sections(run).items():
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
    return Before([(p, first[p.benchmark, p.id]) for p in problems], placed)


def _read(file: Path, options: ImportOptions, identity: dict[str, Any], before: Before) -> _New:
    rows, notes = read_rows(file, options)
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
        notes.append(f"{file.name}: gold answers of {filled} earlier problems are now known")
    if records.doubled:
        notes.append(
            f"{file.name}: {records.doubled} of {len(rows)} rows have the very response that "
            "another file has to the same question by the same generator, and count beside it; if "
            "this file holds the rows of that one again, import it alone into a new run"
        )
    return _New(file.name, {**identity, **counts}, records, [*(there | newer).values()], notes)


def _after(before: Before, new: _New) -> Before:
    """What there will be once the file is stored."""
    added = list(zip(new.records.trajectories, new.records.places, strict=True))
    places = {(t.benchmark, t.problem_id): where for t, where in reversed(added)}
    places |= {(p.benchmark, p.id): where for p, where in before.problems}
    problems = [(p, places[p.benchmark, p.id]) for p in new.problems]
    return Before(problems, [*before.trajectories, *added])


def _store(run: Run, new: _New, read: Sequence[Path]) -> ImportedFile:
    """The trajectories come last: they decide whether the file is there."""
    _write_bad_rows(run, new, read)
    run.problems.replace(new.problems)
    run.write_manifest({**(run.manifest() or {}), _FILE_SECTION + new.name: new.section})
    run.trajectories.append(new.records.trajectories)
    return ImportedFile(
        new.name,
        new.section["rows"],
        new.section["trajectories"],
        new.section["repeated"],
        new.section["set_aside"],
        notes=new.notes,
    )


def _write_bad_rows(run: Run, new: _New, read: Sequence[Path]) -> None:
    """This file's bad rows in the place of any it left before, beside those of other files.

    The paths of the files that were read are cut to their names: a run may go to others.
    """

    def named(text: str) -> str:
        for file in sorted(read, key=lambda file: len(str(file)), reverse=True):
            text = text.replace(str(file), file.name)
        return text

    old = bad_rows(run)
    kept = [line for file, line in old if file != new.name]
    added = [
        json.dumps({"file": new.name, "where": named(row.where), "why": named(row.why)})
        for row in new.records.bad
    ]
    text = "".join(f"{line}\n" for line in [*kept, *added])
    if text:
        atomic.write_text_atomically(run.path / BAD_ROWS_FILE, text)
    elif old:
        (run.path / BAD_ROWS_FILE).unlink()


def bad_rows(run: Run) -> list[tuple[str, str]]:
    """File and line of JSON for every row that was set aside."""
    path = run.path / BAD_ROWS_FILE
    try:
        text = path.read_text(encoding="utf-8")
        if not text.endswith("\n"):
            raise ValueError("its last line has no end")
        found = [(json.loads(line)["file"], line) for line in text.splitlines()]
        for name, section in _file_sections(run).items():
            if section["set_aside"] > sum(file == name for file, _ in found):
                raise ValueError(f"it lacks rows of {name}")
        return found
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged: {error}.",
            next_step="Put a good copy back, or move it away: it holds only reasons to read.",
        ) from error


def _config_text(
    run: Run, options: ImportOptions, family: str | None, trajectories: Sequence[Trajectory]
) -> str:
    """The run's config, with the names of everything that is in it."""
    if run.config_text() is None:
        given = [f"family={family or DEFAULT_FAMILY}", f"protocol={options.protocol}"]
        config = load_config(None, given)
    else:
        config = stored_config(run)
        if family not in (None, config.family):
            # A pair and a theta that were written out belong to the family of before.
            pair = ["trace.reader=null", "trace.auxiliary=null"]
            theta = ["score.theta=null", "score.without_theta=false"]
            config = stored_config(run, [f"family={family}", *pair, *theta])
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


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(
            f"The file {path} cannot be read ({error.strerror}).", next_step="Check the path."
        ) from error
