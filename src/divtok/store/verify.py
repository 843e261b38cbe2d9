"""Whether the files of a run are as they were written: every one is read, nothing is changed.

Knows files, shards and checksums, not what rows mean or whether they fit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from divtok.errors import DivtokError, StoreError, command
from divtok.store import atomic, shard_file, shards
from divtok.store.run import CONFIG_FILE, MANIFEST_FILE, Run
from divtok.store.table_folder import TableFolder


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a file that is not as it should be, or (`harmless`) that is good to know."""

    path: Path
    what: str
    next_step: str
    harmless: bool = False

    @classmethod
    def of(cls, path: Path, error: DivtokError) -> Finding:
        return cls(path, error.what, error.next_step or "")


@dataclass(slots=True)
class Checked:
    """What was read, and what was found."""

    tables: dict[str, int] = field(default_factory=dict[str, int])  # rows in all its shards
    shards: int = 0
    damaged: int = 0  # shards among them
    findings: list[Finding] = field(default_factory=list[Finding])

    @property
    def sound(self) -> bool:
        return all(finding.harmless for finding in self.findings)


def check_files(run: Run) -> Checked:
    """Read every file that divtok wrote into the run's tables, its config and its manifest."""
    found = Checked()
    found.findings += _manifest_and_config(run)
    manifest = not any(finding.path.name == MANIFEST_FILE for finding in found.findings)
    for folder in run.folders():
        # Without the run's id there is nothing to hold the lists against.
        found.findings += _folder(run, folder) if manifest else ()
        _read_shards(folder, found)
    found.findings += [
        Finding(
            path,
            f"{path} was left by a command that was killed.",
            "The next command that writes to the run removes it.",
            harmless=True,
        )
        for path in atomic.orphans(run.path)
    ]
    return found


def _manifest_and_config(run: Run) -> Iterator[Finding]:
    try:
        if run.id is None:
            yield Finding(
                run.path,
                f"{run.path} has no checksums of its config, its manifest and its lists of shards: "
                "an earlier version of divtok made it. Whether they were changed since cannot be "
                "told.",
                "The next command that writes to the run adds them.",
                harmless=True,
            )
    except StoreError as error:
        yield Finding.of(run.path / MANIFEST_FILE, error)
        return
    try:
        missing = run.config_text() is None
    except StoreError as error:
        yield Finding.of(run.path / CONFIG_FILE, error)
        return
    if missing:
        yield Finding(
            run.path / CONFIG_FILE,
            f"The run {run.path} has no {CONFIG_FILE}.",
            "Put it back, or run the command again that made the run.",
        )


def _folder(run: Run, folder: TableFolder) -> Iterator[Finding]:
    """What is wrong with the list of a table's shards, each file by itself."""
    if not folder.ledger.path.exists() and not shards.all_shards(folder.path, strict=False):
        return  # no table of ours
    try:
        several = [*(_stray(run, path) for path in folder.strays(run.id))]
        several += [_lost(run, path) for path in folder.lost(run.id)]
        yield from several
        if not several:
            folder.current()
    except StoreError as error:
        yield Finding.of(folder.path, error)


def _stray(run: Run, path: Path) -> Finding:
    return Finding(
        path,
        f"{path} was not stored by this run.",
        "Move it somewhere else; if its rows belong to the run after all: "
        f"{command('verify', run.path, '--accept')}",
    )


def _lost(run: Run, path: Path) -> Finding:
    return Finding(
        path,
        f"{path} was stored by this run and is gone.",
        f"Put it back; if it is lost: {command('verify', run.path, '--accept')}, and then the "
        "command that made it, which makes its rows again.",
    )


def _read_shards(folder: TableFolder, found: Checked) -> None:
    """Every column of every shard, those that no table of ours has included."""
    files, name = shards.all_shards(folder.path, strict=False), folder.path.name
    counting = shards.current(files)
    for shard in files:
        found.shards += 1
        try:
            rows = shard_file.read(folder.path, shard, lambda schema: schema.names).num_rows
            found.tables[name] = found.tables.get(name, 0) + (rows if shard in counting else 0)
        except StoreError as error:
            found.damaged += 1
            found.findings.append(Finding.of(folder.path / shard.name, error))
        except FileNotFoundError:
            continue  # a command that writes to the run has replaced it meanwhile
