"""A run -> what is not as it should be in it: its files first, then whether rows fit together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from divtok.decide.policy_file import load_policy
from divtok.errors import DivtokError, StoreError
from divtok.evidence.kind import EVIDENCE
from divtok.score.fit_file import load_fit
from divtok.stages.bad_rows import BAD_ROWS_FILE, bad_rows
from divtok.stages.kept_files import kept_files
from divtok.stages.stored import stored_config
from divtok.store.responses import rows_of
from divtok.store.run import CONFIG_FILE, Run
from divtok.store.table import Table
from divtok.store.verify import Checked, Finding, check_files


def verify(run: Run) -> Checked:
    """Read everything and change nothing. Rows are looked at where the files are sound."""
    found = check_files(run)
    if found.sound:
        found.findings += [*_readable(run), *_bad_rows(run), *_kept(run)]
    if found.sound:
        found.findings += [*_repeated(run, found), *_belonging(run)]
    return found


def accept(run: Run) -> None:
    """Take what is in the folder for the run; refused where a shard of it cannot be read."""
    if check_files(run).damaged:
        raise StoreError(
            f"Some shards of {run.path} are damaged, and cannot be accepted.",
            next_step="Put good copies in their place, or delete them: 'divtok verify' names them.",
        )
    run.accept()


def _tables(run: Run) -> list[Table[Any]]:
    evidence = [table for kind in EVIDENCE if (table := kind.table(run)) is not None]
    return list(dict.fromkeys([*run.tables, *evidence]))


def _readable(run: Run) -> Iterator[Finding]:
    try:
        stored_config(run)
    except DivtokError as error:
        yield Finding.of(run.path / CONFIG_FILE, error)
    for table in _tables(run):
        try:
            for _ in table.batches():
                pass
        except StoreError as error:
            yield Finding.of(table.folder, error)


def _bad_rows(run: Run) -> Iterator[Finding]:
    try:
        bad_rows(run)
    except StoreError as error:
        yield Finding.of(run.path / BAD_ROWS_FILE, error)


def _kept(run: Run) -> Iterator[Finding]:
    """Of what was fitted, and of policies."""
    for folder, load in ((run.fits, load_fit), (run.policies, load_policy)):
        for path in kept_files(folder):
            try:
                load(path)
            except DivtokError as error:
                yield Finding.of(path, error)


def _repeated(run: Run, found: Checked) -> Iterator[Finding]:
    for table in _tables(run):
        again = found.tables.get(table.layout.name, 0) - len(table.keys())
        if again > 0:
            yield Finding(
                table.folder,
                f"{table.folder} holds {again:,} rows that were made again later.",
                "The last row of each key counts; there is nothing to do.",
                harmless=True,
            )


def _belonging(run: Run) -> Iterator[Finding]:
    """Rows of tables that hang on another one, which has no such row."""
    columns = ("benchmark", "problem_id")
    asked, problems = set(rows_of(run.trajectories, columns)), run.problems.keys()
    if asked - problems:
        yield _without(run.trajectories, len(asked - problems), "problems", "the problems")
    keys = {key for (key,) in run.trajectories.keys()}  # noqa: SIM118 (a table is not a dict)
    for table in _tables(run):
        if table.layout.key[0] == "key" and table is not run.trajectories:
            alone = {key[0] for key in table.keys()} - keys  # noqa: SIM118
            if alone:
                yield _without(table, len(alone), "trajectories", "the trajectories")


def _without(table: Table[Any], count: int, other: str, what: str) -> Finding:
    return Finding(
        table.folder,
        f"{count:,} keys of {table.folder} are of {what} that the run does not have.",
        f"Put the missing shards of {other} back, or make the run anew under another name.",
    )
